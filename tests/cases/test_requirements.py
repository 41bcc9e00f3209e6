"""Every requirement of the variants and transports has a test that gives a reason."""

from types import SimpleNamespace

import pytest
from fake_machine_files import EFA, GPUS, RAILS, SWITCHES, equip

from hpccoll.cases import requirements
from hpccoll.cases.variants import named_variants
from hpccoll.host import gpu_stack

OF_A_MACHINE = [need for need in requirements.REQUIREMENTS if need not in ("openmpi", "mvapich")]


@pytest.fixture(autouse=True)
def installed(monkeypatch, bare_machine):  # noqa: ARG001
    """Have no package but those that are set here: the name of one, or what find_spec returns of each."""
    packages = {}
    monkeypatch.setattr(requirements, "find_spec", packages.get)
    return packages


def test_every_need_of_a_variant_has_a_test():
    needs = {need for variant in named_variants().values() for need in variant.requirements}
    assert needs == set(requirements.REQUIREMENTS)


def test_a_complete_machine_misses_nothing_but_cupy(tmp_path, installed):
    equip(tmp_path, GPUS, SWITCHES, RAILS)
    names = ("libnccl.so.2", "libsharp_coll.so.5", "libucc.so.1", "libhcoll.so.1")
    equip(tmp_path, {f"lib/{name}": "" for name in names} | {"lib/libnccl-net.so": "SHARP"})
    assert requirements.missing_requirements(OF_A_MACHINE, tmp_path) == [
        "CuPy is not installed: pip install 'hpccoll[cuda12]' or 'hpccoll[cuda13]'",
        "nccl4py not found: pip install 'hpccoll[nccl4py]'",
    ]
    installed |= {"cupy": "there", "nccl": "there", "nccl.bindings": "there"}
    assert requirements.missing_requirements(OF_A_MACHINE, tmp_path) == []


@pytest.mark.parametrize(("multicast", "missing"), [(True, False), (False, True), (None, False)])
def test_nvls_is_missing_only_where_the_driver_denies_multicast(
    tmp_path, monkeypatch, multicast, missing
):
    monkeypatch.setattr(requirements, "supports_multicast", lambda: multicast)
    assert bool(requirements.missing_requirements(["nvswitch"], tmp_path)) == missing


@pytest.mark.parametrize(
    ("version", "too_old"), [("13.6.0", True), ("14.2.0", False), (None, False)]
)
def test_a_cupy_that_is_too_old_is_a_reason(tmp_path, monkeypatch, installed, version, too_old):
    equip(tmp_path, GPUS)
    installed["cupy"] = "there"
    monkeypatch.setattr(gpu_stack, "installed_version", {"cupy-cuda12x": version}.get)
    reasons = requirements.missing_requirements(["cuda"], tmp_path)
    old = "CuPy 13.6.0 is too old; valid: 14 or newer; do: pip install 'hpccoll[cuda12]'"
    assert [reason[: len(old)] for reason in reasons] == [old] * too_old


@pytest.mark.parametrize(
    ("version", "reason"),
    [("2.26.2", "NCCL 2.26.2 is older than 2.27"), ("2.27.3", None), ("2", None)],
)
def test_the_version_of_nccl_is_read_from_its_file_name(tmp_path, version, reason):
    library = equip(tmp_path, {f"lib/libnccl.so.{version}": ""}) / "lib/libnccl.so.2"
    if not library.exists():
        library.symlink_to(f"libnccl.so.{version}")
    assert requirements.missing_requirements(["nccl-2.27"], tmp_path) == (
        [reason] if reason else []
    )


def test_the_version_of_nccl_is_read_from_its_wheel(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_stack, "sys", SimpleNamespace(path=[str(tmp_path)]))
    equip(
        tmp_path,
        {"nvidia/nccl/lib/libnccl.so.2": "", "nvidia_nccl_cu12-2.25.1.dist-info/METADATA": ""},
    )
    assert requirements.missing_requirements(["nccl-2.27"], tmp_path) == [
        "NCCL 2.25.1 is older than 2.27"
    ]


def test_efa_ports_and_inactive_ports_are_not_infiniband(tmp_path):
    equip(tmp_path, EFA, {name: text for name, text in RAILS.items() if "mlx5_2" in name})
    assert requirements.missing_requirements(["infiniband"], tmp_path) == [
        "no InfiniBand or RoCE port in use"
    ]
