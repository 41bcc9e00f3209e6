"""The recorded variables and command lines contain no secrets."""

import pytest

from hpccoll.host.env_allowlist import allowed_variables, redacted_command_line


def test_only_allow_listed_variables_without_secrets_are_recorded(monkeypatch):
    allowed = ("NCCL_ALGO", "OMPI_MCA_btl", "UCX_TLS", "SLURM_JOB_ID", "FI_PROVIDER")
    others = (
        "NCCL_API_KEY",
        "SLURM_JWT",
        "AWS_SECRET_ACCESS_KEY",
        "HOME",
        "MPICH_PASSWORD",
        "SLURM_CONF_SERVER",
    )
    monkeypatch.setattr("os.environ", dict.fromkeys((*allowed, *others), "x"))
    assert allowed_variables().keys() == {*allowed}


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            "mpiexec -n 2 hpccoll run -b 8 --param channels=4",
            "mpiexec -n 2 hpccoll run -b 8 --param channels=4",
        ),
        (
            "mpiexec -genv PGPASSWORD x -genv UCX_TLS tcp a",
            "mpiexec -genv PGPASSWORD *** -genv UCX_TLS tcp a",
        ),
        ("mpirun -x AWS_KEY=abc -x NCCL_ALGO=Ring a", "mpirun -x AWS_KEY=*** -x NCCL_ALGO=Ring a"),
        ("srun --export=ALL,MY_DB=x,UCX_TLS=tcp a", "srun --export=ALL,MY_DB=***,UCX_TLS=tcp a"),
    ],
)
def test_command_lines_hide_the_values_of_other_variables(line, shown):
    assert redacted_command_line(line.split()) == shown
