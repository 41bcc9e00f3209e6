"""Spack's recipe: not run. Put it into packages/py_hpccoll of a repository of yours, then: spack install py-hpccoll."""

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyHpccoll(PythonPackage):
    """Measures the collectives of a cluster, and says which algorithm to use at which size."""

    homepage = "https://github.com/hpccoll/hpccoll"
    git = "https://github.com/hpccoll/hpccoll.git"

    license("Apache-2.0")

    version("main", branch="main")

    # In 2026 Spack has no such Snakemake; without it, all commands but sweep and plan work.
    variant("sweep", default=False, description="Sweeps through Slurm, by Snakemake")
    variant("analysis", default=True, description="Results as xarray data sets")

    depends_on("c", type="build")  # compiles the executor
    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-hatchling@1.25:", type="build")
    depends_on("py-hatch-fancy-pypi-readme@24.1:", type="build")
    depends_on("mpi", type="run")

    depends_on("py-numpy@2:", type=("build", "run"))
    depends_on("py-mpi4py@4.1:", type=("build", "run"))
    depends_on("py-h5py@3.12:", type=("build", "run"))
    depends_on("py-pydantic@2.9:", type=("build", "run"))
    depends_on("py-msgspec@0.19:", type=("build", "run"))
    depends_on("py-pyyaml@6:", type=("build", "run"))
    depends_on("py-shtab@1.7:", type=("build", "run"))
    depends_on("py-junitparser@3.1:", type=("build", "run"))
    depends_on("py-scipy@1.14:", type=("build", "run"))
    depends_on("py-altair@5.5:6", type=("build", "run"))
    depends_on("py-vl-convert-python@1.8:", type=("build", "run"))
    depends_on("py-jinja2@3.1:", type=("build", "run"))

    with when("+sweep"):
        depends_on("snakemake@9.27:9", type=("build", "run"))
        depends_on("py-snakemake-executor-plugin-slurm@2.8", type=("build", "run"))
        depends_on("py-snakemake-executor-plugin-slurm-jobstep@0.6.1:0.6", type=("build", "run"))

    with when("+analysis"):
        depends_on("py-xarray@2025.1:", type=("build", "run"))
        depends_on("py-h5netcdf@1.4:", type=("build", "run"))
        depends_on("py-pandas@2.2:", type=("build", "run"))
