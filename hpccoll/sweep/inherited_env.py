"""Variables that jobs inherit from the site file or the submitting shell, before a variant sets its own.

They apply to every job whose variant does not set them, including ``default``; the job's name does not show them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpccoll.cases.communicator_settings import CommunicatorSettings, overridden_settings
from hpccoll.cases.variables import (
    FABRIC_VARIABLES,
    IB_PREFIX,
    NETWORKS_WITHOUT_IB,
    VARIABLES,
    assignment,
    unknown_nccl_variables,
)
from hpccoll.common.errors import BadInputError

Variants = Mapping[str, Mapping[str, str]]
SITE = "the site file"
SHELL = "this shell"
MAX_LISTED = 4


@dataclass(frozen=True, slots=True)
class InheritedEnv:
    """The variables of the site file, and those of the shell, which Slurm exports to jobs; the site's override them."""

    site: Mapping[str, str]
    shell: Mapping[str, str]

    def notes(
        self, variants: Variants, communicators: Mapping[str, CommunicatorSettings], transports: Sequence[str]
    ) -> Iterator[str]:
        """Yield a note for each inherited variable that affects the jobs of a sweep or looks misspelt.

        Raises:
            BadInputError: if an inherited variable overrides a setting that the variants compare.
        """
        inherited = {name: (SHELL, value) for name, value in self.shell.items()}
        inherited |= {name: (SITE, value) for name, value in self.site.items()}
        for variant, settings in communicators.items():
            for setting, name in overridden_settings(inherited.keys() - variants[variant].keys(), settings):
                where, value = inherited[name]
                raise _override_error(where, name, value, f"it would override {setting} of variant {variant}")
        for name, (where, value) in inherited.items():
            if _is_relevant(transports, name) and (note := _leak_note(where, name, value, variants)):
                yield note
        for where, variables in {SITE: self.site, **variants}.items():
            yield from (f"{doubt} ({where})" for doubt in unknown_nccl_variables(variables))

    def why_unread(self, variables: Mapping[str, str]) -> str | None:
        """Return why the network that NCCL_NET selects ignores ``variables`` of a variant; None if it reads them."""
        network = {**self.shell, **self.site, **variables}.get("NCCL_NET", "")
        if (
            not variables
            or network.lower() not in NETWORKS_WITHOUT_IB
            or not all(name.startswith(IB_PREFIX) for name in variables)
        ):
            return None
        return f"NCCL reads {' and '.join(variables)} over InfiniBand and RoCE only, and NCCL_NET={network} is neither"


def _is_relevant(transports: Sequence[str], name: str) -> bool:
    """Return whether a library of ``transports`` can read a variable: NCCL_* needs nccl, MPI's need another one."""
    return "nccl" in transports if name.startswith("NCCL_") else {*transports} != {"nccl"} or name not in VARIABLES


def _leak_note(where: str, name: str, value: str, variants: Variants) -> str | None:
    """Return a note if some variants inherit a variable that others set or that a known variant sets."""
    setting = [variant for variant, variables in variants.items() if name in variables]
    others = [variant for variant in variants if variant not in setting]
    if (variants and not others) or not (setting or name in VARIABLES):
        return None
    if setting and name in VARIABLES and name not in FABRIC_VARIABLES:
        raise _override_error(where, name, value, f"variant {setting[0]} sets it, and {others[0]} would inherit it")
    listed = _list_variants(others, setting)
    return f"{assignment(name, value)} of {where} also applies to {listed}; their names do not show it"


def _list_variants(others: Sequence[str], setting: Sequence[str]) -> str:
    """Return the names of ``others``, which inherit a variable; of many, the number or the ``setting`` exceptions."""
    if len(others) <= MAX_LISTED:
        return ", ".join(others) or "every job"
    return f"all other variants than {', '.join(setting)}" if setting else f"all {len(others)} variants"


def _override_error(where: str, name: str, value: str, why: str) -> BadInputError:
    """Return the error that an inherited variable overrides a setting of a variant."""
    if where == SITE:
        return BadInputError(f"environment.{name}", value, f"left to variants: {why}")
    return BadInputError(f"{name} of {where}", value, f"unset: {why}")
