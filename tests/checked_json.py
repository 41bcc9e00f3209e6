"""What commands print as JSON, held against the schemas of ``hpccoll list schemas``: no key more, and none less."""

import json
from functools import cache

from hpccoll.cli.schemas import output_schemas

FREE = {"FindingJson", "GeometryJson", "ListingJson"}
"""The records with further keys: values of findings, and tables of workloads."""


def check_json(arguments, text):
    """Check what a command printed if its arguments ask for JSON; a command may have several outputs."""
    words = [str(argument) for argument in arguments]
    names = names_of_schemas(words)
    if not names or not text.startswith(("{", "[")):
        return
    instance = json.loads(text, parse_constant=_refuse)
    faults = {name: first_fault(name, instance) for name in names}
    assert None in faults.values(), f"{' '.join(words)}: {faults}"


def names_of_schemas(words):
    """Return the schemas of the commands that have the most words in common with a command line."""
    if words[:1] == ["export"]:
        return ["rows"] if "--format" not in words or "json" in words else []
    if words[:2] == ["list", "schemas"]:
        return ["list-schemas"] if words[2:] == ["--json"] else []
    fits = {}
    for name, schema in output_schemas().items():
        for command in schema.printed_by.split("; "):
            fixed = [word for word in command.split() if word == word.lower() and word[0] != "["]
            matches = all({*word.split("|")} & {*words} for word in fixed)
            if "--json" in fixed and matches and fixed[0] == words[0]:
                fits[name] = max(len(fixed), fits.get(name, 0))
    return [name for name, length in fits.items() if length == max(fits.values())]


def first_fault(name, instance):
    """Return what is wrong with an instance; None if it is valid, and its records have the keys of the schema only."""
    fault = next(_validator(name).iter_errors(instance), None)
    return fault and f"{fault.json_path}: {fault.message[:400]}"


@cache
def _validator(name):
    import jsonschema

    schema = output_schemas()[name].json_schema()
    for title, part in schema.get("$defs", {}).items():
        if title not in FREE and "properties" in part:
            part["additionalProperties"] = False
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def _refuse(constant):
    raise AssertionError(f"JSON has no {constant}")
