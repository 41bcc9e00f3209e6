"""Provenance as text: each fact by its whole name."""

from collections.abc import Iterable, Mapping


def provenance_facts(facts: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return facts of provenance by their whole names, such as ``versions.numpy``."""
    flat: dict[str, object] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat |= provenance_facts(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = _list_text(value) if isinstance(value, list | tuple) else value
    return flat


def _list_text(values: Iterable[object]) -> str:
    return "; ".join(
        ", ".join(f"{name} {text}" for name, text in provenance_facts(value).items())
        if isinstance(value, Mapping)
        else str(value)
        for value in values
    )
