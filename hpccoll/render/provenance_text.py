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
    texts = []
    for value in values:
        if isinstance(value, Mapping):
            facts = [f"{name} {fact}" for name, fact in provenance_facts(value).items()]
            texts.append(", ".join(facts))
        else:
            texts.append(str(value))
    return "; ".join(texts)
