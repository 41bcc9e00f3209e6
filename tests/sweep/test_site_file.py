"""The site file: what it may say, the launcher line and the request that it comes to, and Snakemake's view of these."""

import re
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from snakemake_executor_plugin_slurm.submit_string import get_submit_command
from snakemake_executor_plugin_slurm.utils import set_gres_string
from snakemake_executor_plugin_slurm.validation import (
    get_forbidden_slurm_options,
    validate_slurm_extra,
)

from hpccoll.cases.case import Shape
from hpccoll.cases.plan import sbatch_options
from hpccoll.common.errors import BadInputError
from hpccoll.sweep.paths import site_files
from hpccoll.sweep.site_file import Site, load_site

SLURM = Path(__file__).parents[2] / "slurm"
GEOMETRY = (
    "-N 2 -n 8 --ntasks-per-node=4 --distribution=block --nodelist=n1,n2 --kill-on-bad-exit=1"
)


@pytest.fixture
def site(tmp_path):
    """Load a site file of this text."""

    def write(text):
        path = tmp_path / "a.yaml"
        path.write_text(text)
        return load_site(str(path), "slurm")

    return write


def line(site):
    return site.rank_launcher().line(Shape(2, 8), ["n1", "n2"])


def uncommented(path):
    """Return a site file with the keys in it that are commented out."""
    return re.sub(r"^# ((?:  )?[\w]+:(?: .*)?)$", r"\1", path.read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("path", site_files(), ids=lambda path: path.stem)
def test_files_that_come_with_hpccoll_are_valid_also_with_what_is_commented_out_in_them(site, path):
    assert line(load_site(path.stem, "slurm")).endswith("hpccoll")
    text = uncommented(path)
    assert not [one for one in text.splitlines() if re.match(r"# *[a-z_]+:", one)]
    found = site(text)
    assert found.partition or "partition" not in path.read_text()
    assert set(yaml.safe_load(text)) == found.model_fields_set


def test_a_profile_has_its_own_site_or_leaves_all_to_slurm():
    assert load_site(None, "testbed") == load_site("testbed", "slurm")
    assert load_site(None, "slurm") == Site.model_validate({})


IMAGE = "container: {runtime: pyxis, image: a}"
PODS = "kubernetes: {image: a, claim: b"
BAD = {
    "partitions: work": "partitions|'work'|no such key|partition, account",
    "container: {runtime: pyxis}": "container.image is missing: ",
    "minutes: 0": "minutes|0|at least 1: ",
    "minutes: 1h": "minutes|'1h'|a whole number",
    "account: no": "account: False|one text or number; in quotes",
    "partition: -1": "partition|-1|a name",
    "qos: --wait": "qos|'--wait'|a name",
    "launcher: 'mpirun -n {tasks}'": "launcher|{tasks}|{nodes}, {ranks}, {ranks_per_node}",
    f"launcher: mpiexec\n{IMAGE}": "launcher|mpiexec|srun",
    "minutes: 1": "signal_s|60|less than the time limit, 60 s",
    "sbatch: --reservation mine": "sbatch|a long option of sbatch in one word",
    "environment: {A B: 1}": "environment|'A B'|letters (A to Z)",
    "environment: {NCCL_PROTO: L}": "environment.NCCL_PROTO|'L'|LL, LL128",
    "gpus_per_node: 0": "gpus_per_node|'0'|GPUs on each node, such as 8 or h100:8",
    "gres: nvme:1": "gres|'nvme:1'|such as gpu:8 or gpu:h100:8",
    "gres: gpu:8\ngpus_per_node: 4": "gres|'gpu:8'|either gres or gpus_per_node, which is 4",
    "sbatch: ['--gres=gpu:8']": "sbatch: '--gres=gpu:8'|use gres",
    f"{PODS}}}\npartition: work": "partition|'work'|left out beside kubernetes",
    "kubernetes: {image: a}": "kubernetes.claim is missing: ",
    f"{PODS}, clam: b}}": "kubernetes.clam|no such key|did you mean claim",
    f"{PODS}, mpi: LAM}}": "kubernetes.mpi|'LAM'|OpenMPI, Intel, MPICH",
    f"{PODS}, namespace: A_B}}": "kubernetes.namespace|'A_B'|a to z",
    f"{PODS}, namespace: {'a' * 64}}}": "kubernetes.namespace|at most 63",
    f"{PODS}, resources: {{a b: 1}}}}": "kubernetes.resources|'a b'|rdma/hca",
    f"{PODS}, resources: {{cpu: lots}}}}": "kubernetes.resources.cpu|'lots'|64Gi",
    f"{PODS}, node_selector: {{gpu: a b}}}}": "kubernetes.node_selector.gpu|'a b'|label",
    f"{PODS}, host_network: 3}}": "kubernetes.host_network|true or false",
    "- partition": "it is not YAML of keys and values: partition, account",
    **{
        f"sbatch: ['{option}']": f"sbatch: '{option}'|use {key}"
        for option, key in {
            "--part=work": "partition",
            "--mem=0": "memory_mb",
            "--signal=USR1@9": "signal_s",
            "--nodes=4": "nodes",
            "--exclusive": "exclusive",
            "--array=1-2": "nothing",
        }.items()
    },
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_file_takes_one_line(site, text):
    with pytest.raises(BadInputError) as error:
        site(text)
    message = str(error.value)
    assert "\n" not in message
    assert not [word for word in BAD[text].split("|") if word not in message], message


def test_unknown_keys_come_before_other_mistakes(site):
    with pytest.raises(BadInputError) as error:
        site("minutes: none\npartiton: gpu")
    keys = [each.key.rpartition(": ")[2] for each in (error.value, *error.value.others)]
    assert keys == ["partiton", "minutes"]


def test_what_snakemake_would_refuse_when_it_submits_is_refused_when_it_is_planned(site):
    for pattern in get_forbidden_slurm_options():
        for option in re.sub(r"\[=\\s\]|\\s\??", "=x", pattern).split("|"):
            assert re.search(pattern, option.replace("=", " ")), (
                f"the test makes {option} of {pattern}"
            )
            with pytest.raises(BadInputError):
                site(f"sbatch: ['{option if option.startswith('--') else option[:2]}']")


def test_srun_gets_the_whole_geometry_and_every_rank_sees_all_gpus_of_its_node_from_the_socket_of_its_own(
    site,
):
    assert line(site("launcher: srun --mpi=pmix")) == f"srun --mpi=pmix {GEOMETRY} hpccoll"
    near = GEOMETRY.replace("--distribution=block", "--distribution=block:block")
    found = site("gpus_per_node: h100:8")
    assert (
        line(found)
        == f"srun {near} --cpus-per-task=$((SLURM_CPUS_ON_NODE / 4)) --gpu-bind=none hpccoll"
    )
    assert "--gpus-per-node=h100:8" in found.resource_request(Shape(2, 8), 9)["slurm_extra"].split()


def test_ranks_on_nodes_of_gpus_share_the_cpus_of_the_job_unless_the_site_says_otherwise(site):
    assert " --cpus-per-task=4 " in line(site("gpus_per_node: 8\ncpus_per_task: 4"))
    hosts = "gpus_per_node: 8\naggregators: {partition: all}"
    assert "--cpus-per-task" not in line(site(hosts)), "hosts of aggregators may have fewer"
    assert not any(
        "cpus_per_task" in path.read_text()
        for path in site_files()
        if "gpus_per_node" in path.read_text()
    )


@pytest.mark.parametrize(
    ("option", "rest"), [("--cpus-per-task 6", "gpus_per_node: 8"), ("-c6", "cpus_per_task: 4")]
)
def test_an_option_of_the_launcher_for_cpus_stays_the_only_one(site, option, rest):
    text = line(site(f"launcher: srun {option} --mpi=pmix\n{rest}"))
    assert text.startswith(f"srun {option} --mpi=pmix -N 2 ")
    assert text.count("--cpus-per-") + text.count(" -c") == 1


def test_pyxis_is_part_of_srun_and_starts_where_results_go_with_variables_of_site_and_variants(
    site, tmp_path
):
    mounts = "mounts: ['/a:/a', '/b:/c']"
    found = site(
        f"container: {{runtime: pyxis, image: 'a {{0}}.sqsh', {mounts}}}\nenvironment: {{UCX_TLS: tcp}}"
    )
    text = found.rank_launcher(["UCX_TLS", "N"]).line(Shape(2, 8), ["n1", "n2"])
    assert text.startswith(f"srun {GEOMETRY} --container-image='a {{0}}.sqsh' "), (
        "braces of an image mean nothing"
    )
    words = subprocess.run(
        ["/bin/bash", "-c", f"printf '%s\\n' {text}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert words[-5:] == [
        "--container-image=a {0}.sqsh",
        f"--container-workdir={tmp_path}",
        "--container-mounts=/a:/a,/b:/c",
        "--container-env=UCX_TLS,N",
        "hpccoll",
    ]


def test_apptainer_stands_between_the_launcher_and_the_program(site):
    text = "container: {runtime: apptainer, image: 'a b.sif', mounts: ['/a:/a', '/b:/c']}"
    inside = "--bind /a:/a --bind /b:/c 'a b.sif' hpccoll"
    assert line(site(text)) == f"srun {GEOMETRY} apptainer exec {inside}"
    assert line(site(f"{text}\ngpus_per_node: 8")).endswith(f"apptainer exec --nv {inside}")
    assert (
        line(site(f"{text}\nlauncher: 'mpirun -n {{ranks}}'"))
        == f"mpirun -n 8 apptainer exec {inside}"
    )


def test_modules_come_before_variables_and_both_before_ranks(site):
    found = site("modules: [gcc, 'openmpi/5.0']\nenvironment: {A: 'b c', N: 1}").rank_launcher()
    assert found.setup == ("module load gcc openmpi/5.0", "export A='b c'", "export N=1")
    assert found.slurm


FULL = """\
partition: work
account: 10319
qos: high
constraint: hdr&big
minutes: 30
memory_mb: 1000
cpus_per_task: 4
gpus_per_node: 8
signal_s: 90
sbatch: ["--switches=1@10:00", "--nodelist=n[1-2]"]
"""


def submitted(request):
    """Return the words of the sbatch that Snakemake makes of a request."""

    class Resources(dict):
        __getattr__ = dict.__getitem__

    job = SimpleNamespace(resources=Resources(request), threads=1)
    validate_slurm_extra(job)
    gpus = set_gres_string(job)
    of_the_run = dict.fromkeys(["run_uuid", "slurm_logfile", "comment_str"], "x")
    return shlex.split(
        get_submit_command(job, {**of_the_run, "account": "", "partition": "", "workdir": ""})
        + gpus
    )


def test_snakemake_submits_what_a_site_asks_for(site):
    words = submitted(site(FULL).resource_request(Shape(2, 8), 9))
    assert words[words.index("--comment") + 2 :] == [
        "-t",
        "30",
        "-C",
        "hdr&big",
        "--qos=high",
        "--mem",
        "1000",
        "--nodes=2",
        "--ntasks=8",
        "--cpus-per-task=4",
        "--ntasks-per-node=4",
        "--signal=USR1@90",
        "--exclusive",
        "--gpus-per-node=8",
        "--switches=1@10:00",
        "--nodelist=n[1-2]",
    ]


@pytest.mark.parametrize("gres", ["gpu:8", "gpu:h100:8"])
def test_a_site_whose_slurm_takes_gres_only_asks_for_gpus_by_it_and_binds_ranks_as_with_gpus_per_node(
    site, gres
):
    by_gres, by_number = site(f"gres: {gres}"), site("gpus_per_node: 8")
    assert (line(by_gres), by_gres.gpus) == (line(by_number), 8)
    request = by_gres.resource_request(Shape(2, 8), 9)
    for words in (submitted(request), sbatch_options(request)):
        assert f"--gres={gres}" in words
        assert "--ntasks=8" in words
        assert not [word for word in words if word.startswith(("--gpus", "--ntasks-per-gpu"))]


LONG = {"-t": "--time", "-C": "--constraint", "--mem": "--mem"}


def test_the_options_that_a_plan_shows_are_those_that_snakemake_submits(site):
    request = site(FULL).resource_request(Shape(2, 8), 9)
    words = submitted(request)
    rest = iter(words[words.index("--comment") + 2 :])
    long = [f"{LONG[word]}={next(rest)}" if word in LONG else word for word in rest]
    # which Snakemake adds when it has looked at them
    of_the_run = ["--partition=work", "--account=10319"]
    assert sorted(sbatch_options(request)) == sorted([*long, *of_the_run])


BESIDE = "partition: work\nconstraint: hdr\naggregators: {partition: all, aggregator: switch}\n"


def test_a_job_with_aggregators_takes_partition_and_features_from_their_key(site):
    words = submitted(site(BESIDE).resource_request(Shape(2, 8, 3, dedicated_aggregators=True), 9))
    assert words[words.index("--comment") + 2 :] == [
        "-t",
        "9",
        "-C",
        "[worker*2&switch*3]",
        "--nodes=5",
        "--ntasks=11",
        "--ntasks-per-node=4",
        "--signal=USR1@60",
        "--exclusive",
    ]
    assert (
        site(BESIDE).resource_request(Shape(2, 8, 3, dedicated_aggregators=True), 9)[
            "slurm_partition"
        ]
        == "all"
    )
    assert site(BESIDE).resource_request(Shape(2, 8), 9)["constraint"] == "hdr"


def test_ranks_go_to_hosts_in_the_order_of_a_list_where_aggregators_are_apart(site):
    hosts = ["n1", "n2", "a1", "a2"]
    text = site(BESIDE).rank_launcher().line(Shape(2, 4, 2, dedicated_aggregators=True), hosts)
    nodelist = "n1,n1,n2,n2,a1,a2"
    assert (
        text
        == f"srun -N 4 -n 6 --distribution=arbitrary --nodelist={nodelist} --kill-on-bad-exit=1 hpccoll"
    )


@pytest.mark.parametrize("account", ["My Project (A1)", "a,b"])
def test_an_account_that_the_plugin_would_split_reaches_sbatch_whole(site, account):
    request = site(yaml.safe_dump({"account": account})).resource_request(Shape(2, 8), 9)
    assert "slurm_account" not in request
    for words in (submitted(request), sbatch_options(request)):
        assert f"-A{account}" in words
