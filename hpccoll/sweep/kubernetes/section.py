"""The section of a site file for Kubernetes: what pods run, what they may use, and where they write results."""

import re
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from hpccoll.common.errors import BadInputError
from hpccoll.common.yaml_model import Text, VariableValue, YamlSection

HOST_FILE = "/etc/mpi/hostfile"
"""Where both operators mount the list of workers in the launcher's pod."""

MAX_LABEL = 63
"""Maximum number of characters of a label, which names of namespaces are (RFC 1123)."""
MAX_OBJECT_NAME = 253
"""Maximum number of characters of the name of most objects, which consists of labels and dots."""

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
OBJECT_NAME = re.compile(rf"{LABEL.pattern}(\.{LABEL.pattern})*")
QUALIFIED_NAME = re.compile(rf"({OBJECT_NAME.pattern}/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
"""The name of a resource, an annotation or a label of nodes, such as ``nvidia.com/gpu``."""
QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?")

MpiImplementation = Literal["OpenMPI", "Intel", "MPICH"]
"""The MPI library of an image, as MPIJob names it."""

MAX_ENTRIES = 100
"""Maximum number of entries of a mapping of the section."""


def _check_label(text: str) -> str:
    if len(text) > MAX_LABEL or not LABEL.fullmatch(text):
        expected = f"at most {MAX_LABEL} of a to z, 0 to 9 and -, with none of - at its ends"
        raise BadInputError("name", text, expected)
    return text


def _check_object_name(text: str) -> str:
    if len(text) > MAX_OBJECT_NAME or not OBJECT_NAME.fullmatch(text):
        expected = f"at most {MAX_OBJECT_NAME} of a to z, 0 to 9, - and ., as Kubernetes names it"
        raise BadInputError("name", text, expected)
    return text


def _check_qualified_names(values: dict[str, str]) -> dict[str, str]:
    for name in values:
        if not QUALIFIED_NAME.fullmatch(name) or len(name.rpartition("/")[2]) > MAX_LABEL:
            raise BadInputError("name", name, "a name such as cpu or rdma/hca")
    return values


Label = Annotated[Text, AfterValidator(_check_label)]
ObjectName = Annotated[Text, AfterValidator(_check_object_name)]
Entries = Annotated[
    dict[str, VariableValue],
    Field(max_length=MAX_ENTRIES),
    AfterValidator(_check_qualified_names),
]


class KubernetesSection(YamlSection):
    """The pods in which ranks run, by hpccoll plan --format mpijob or trainjob."""

    image: Text = Field(description="image with hpccoll, its MPI library and sshd, as root")
    claim: ObjectName = Field(
        description="PersistentVolumeClaim for the results, ReadWriteMany: all pods mount it"
    )
    namespace: Label | None = Field(None, description="namespace of all objects [kubectl's]")
    mpi: MpiImplementation = Field(
        "OpenMPI", description="MPI library of the image: OpenMPI, Intel or MPICH [OpenMPI]"
    )
    resources: Entries = Field(
        {}, description="further limits of each worker, such as rdma/hca: 1, cpu: 96 or memory: 1Ti"
    )
    annotations: Entries = Field(
        {}, description="annotations of workers, such as k8s.v1.cni.cncf.io/networks: my-network"
    )
    node_selector: Entries = Field({}, description="labels that the nodes of workers must have")
    host_network: bool = Field(
        False, description="whether workers use the network of their node; sshd needs a free port"
    )

    @field_validator("resources")
    @classmethod
    def _has_quantities(cls, resources: dict[str, str]) -> dict[str, str]:
        for name, quantity in resources.items():
            if not QUANTITY.fullmatch(quantity):
                key = f"kubernetes.resources.{name}"
                raise BadInputError(key, quantity, "a quantity such as 1, 500m or 64Gi")
        return resources

    @field_validator("node_selector")
    @classmethod
    def _has_label_values(cls, labels: dict[str, str]) -> dict[str, str]:
        for name, value in labels.items():
            if len(value) > MAX_LABEL or not LABEL_VALUE.fullmatch(value):
                key = f"kubernetes.node_selector.{name}"
                expected = f"the value of a label: at most {MAX_LABEL} letters, digits, -, _ and ."
                raise BadInputError(key, value, expected)
        return labels

    def launch_command(self, variables: Iterable[str]) -> str:
        """Return the command that starts ranks from the launcher's pod, with the placeholders of ``Launcher``.

        Intel MPI and MPICH (Hydra) pass the whole environment on, Open MPI only ``variables``.
        Ranks of Open MPI are not bound: by default each would have one core, and NCCL has threads
        of its own.
        """
        if self.mpi != "OpenMPI":
            program = "mpirun" if self.mpi == "Intel" else "mpiexec"
            return f"{program} -f {HOST_FILE} -n {{ranks}} -ppn {{ranks_per_node}}"
        place = f"--hostfile {HOST_FILE} -n {{ranks}} --map-by ppr:{{ranks_per_node}}:node"
        passed = "".join(f" -x {name}" for name in dict.fromkeys(variables))
        return f"mpirun --allow-run-as-root {place} --bind-to none{passed}"
