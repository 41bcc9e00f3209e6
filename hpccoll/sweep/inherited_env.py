"""Surroundings: variables that jobs have before a variant sets any, by the site file or the shell that submits them.

They hold in every job that does not set them itself, ``default`` too, and its name does not say so.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpccoll.errors import BadInputError
from hpccoll.evidence.communicator_settings import CommunicatorSettings, overridden_settings
from hpccoll.evidence.variables import (
    FABRIC_VARIABLES,
    IB_PREFIX,
    NETWORKS_WITHOUT_IB,
    VARIABLES,
    assignment,
    unknown_nccl_variables,
)

Variants = Mapping[str, Mapping[str, str]]
SITE = "the site file"
SHELL = "this shell"
MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is set around jobs.

    Args:
        site: by the site file.
        shell: where a sweep is started: Slurm hands it on, and the site's have the last word. Empty where that is not
            known.
    """

    site: Mapping[str, str]
    shell: Mapping[str, str]

    def notes(
        self, variants: Variants, communicators: Mapping[str, CommunicatorSettings], transports: Sequence[str]
    ) -> Iterator[str]:
        """Yield a sentence for everything that they do to the jobs of a sweep, and for what looks misspelt.

        Args:
            variants: of the sweep, each with its variables.
            communicators: what those of NCCL are made with in each of the variants.
            transports: that it measures; what a library that it does not use reads is no matter.

        Raises:
            BadInputError: where they decide what a variant of the sweep is there to compare.
        """
        around = {name: (SHELL, value) for name, value in self.shell.items()}
        around |= {name: (SITE, value) for name, value in self.site.items()}
        for variant, settings in communicators.items():
            for setting, name in overridden_settings(around.keys() - variants[variant].keys(), settings):
                where, value = around[name]
                raise _decides(where, name, value, f"it would win over {setting} of variant {variant}")
        for name, (where, value) in around.items():
            if _read_over(transports, name) and (note := _leak(where, name, value, variants)):
                yield note
        for where, variables in {SITE: self.site, **variants}.items():
            yield from (f"{said} ({where})" for said in unknown_nccl_variables(variables))

    def unread(self, variables: Mapping[str, str]) -> str | None:
        """Return that nothing reads ``variables`` of a variant over the network that NCCL is told to use, or None."""
        network = {**self.shell, **self.site, **variables}.get("NCCL_NET", "")
        if (
            not variables
            or network.lower() not in NETWORKS_WITHOUT_IB
            or not all(name.startswith(IB_PREFIX) for name in variables)
        ):
            return None
        return f"NCCL reads {' and '.join(variables)} over InfiniBand and RoCE alone, and NCCL_NET={network} is neither"


def _read_over(transports: Sequence[str], name: str) -> bool:
    """Return whether a variable can matter: NCCL's own where something goes over it, and others where not all does."""
    return "nccl" in transports if name.startswith("NCCL_") else {*transports} != {"nccl"} or name not in VARIABLES


def _leak(where: str, name: str, value: str, variants: Variants) -> str | None:
    """Return which variants have a variable from outside that others of the sweep, or of the table, are about."""
    setting = [variant for variant, variables in variants.items() if name in variables]
    others = [variant for variant in variants if variant not in setting]
    if (variants and not others) or not (setting or name in VARIABLES):
        return None
    if setting and name in VARIABLES and name not in FABRIC_VARIABLES:
        raise _decides(where, name, value, f"variant {setting[0]} sets it, and {others[0]} would have this one")
    return f"{assignment(name, value)} of {where} holds in {_named(others, setting)}, whose names do not say so"


def _named(others: Sequence[str], setting: Sequence[str]) -> str:
    """Return those variants that do not set a variable, of many only how many and the ``setting`` ones, which do."""
    if len(others) <= MOST_NAMED:
        return ", ".join(others) or "every job"
    return f"all other variants than {', '.join(setting)}" if setting else f"all {len(others)} variants"


def _decides(where: str, name: str, value: str, why: str) -> BadInputError:
    """Return the complaint that a variable from outside decides what a variant is there to compare."""
    if where == SITE:
        return BadInputError(f"environment.{name}", value, f"left to variants: {why}")
    return BadInputError(f"{name} of {where}", value, f"unset: {why}")
