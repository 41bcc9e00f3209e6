"""The schemas of all JSON that commands print, and of the files that other programs read: ``hpccoll list schemas``."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from hpccoll.common.errors import BadInputError, did_you_mean
from hpccoll.common.extensions import contributions
from hpccoll.common.json_schema import DIALECT, JsonSchema, OutputSchema, schema_id, typed_dict

SchemasJson = typed_dict(
    "SchemasJson", {"$schema": str, "$id": str, "$defs": dict[str, dict[str, Any]]}
)


SCHEMAS = (
    OutputSchema(
        "rows",
        "export --format json",
        "a row for each case and attempt: its times and what ran; absent values are null",
        ("hpccoll.store.rows:Row",),
        is_array=True,
        meanings="hpccoll.store.rows:MEANINGS",
    ),
    OutputSchema(
        "status",
        "status --json",
        "the progress, gaps and damage of sweeps",
        ("hpccoll.analysis.sweep_status:SweepStatusJson",),
        is_array=True,
    ),
    OutputSchema(
        "compare",
        "compare OLD NEW --json",
        "which cases changed between two runs, by verdict",
        ("hpccoll.judge.run_comparison:Comparison",),
    ),
    OutputSchema(
        "reference",
        "compare --make-reference RUNS --out F.json",
        "the times of repeated runs, and the bounds that one more run is expected to keep",
        ("hpccoll.judge.reference:Reference",),
    ),
    OutputSchema(
        "accept",
        "accept FILES --json",
        "rows, each held against what is normal",
        ("hpccoll.judge.acceptance:Judged",),
        is_array=True,
    ),
    OutputSchema(
        "ratios",
        "accept FILES --ratios --json; predict --against RESULTS --json",
        "measured over expected times: of our algorithms, and of calls of libraries",
        (
            "hpccoll.judge.expectations:ExpectedCase",
            "hpccoll.judge.library_expectations:ComparedCall",
        ),
        is_array=True,
    ),
    OutputSchema(
        "trace",
        "trace FILES --json",
        "what a recorded job waits for, and who is late",
        ("hpccoll.render.trace_text:trace_json_record",),
    ),
    OutputSchema(
        "count",
        "count RECORDED --json",
        "the collectives of a program: calls, bytes and seconds of each kind",
        ("hpccoll.render.count_text:CountJson",),
    ),
    OutputSchema(
        "tune-for",
        "tune --for COUNT.h5 --json",
        "what other algorithms would save in a counted program",
        ("hpccoll.render.counted_gain_text:ProgramGainJson",),
    ),
    OutputSchema(
        "order",
        "order ALGORITHM -p N --json",
        "in which order an algorithm adds, and what changes the bits",
        ("hpccoll.analysis.order_record:OrderJson",),
    ),
    OutputSchema(
        "evidence",
        "evidence LOGS --json",
        "what libraries executed, by launch",
        ("hpccoll.render.log_report:logs_record",),
    ),
    OutputSchema(
        "diagnose",
        "diagnose --json; diagnose --report FILE --json",
        "which nodes, links, rails and racks are slow",
        ("hpccoll.diagnosis.verdict:MachineVerdict",),
    ),
    OutputSchema(
        "diagnose-history",
        "diagnose --report FILES --json",
        "what is slow again and again",
        ("hpccoll.diagnosis.history:MachineHistory",),
    ),
    OutputSchema(
        "diagnose-here",
        "diagnose --here --json",
        "the health of this node",
        ("hpccoll.diagnosis.node_health:NodeHealthJson",),
    ),
    OutputSchema(
        "node-reference",
        "diagnose --here --make-reference FILE",
        "what a healthy node gave",
        ("hpccoll.diagnosis.node_health:NodeReference",),
    ),
    OutputSchema(
        "choice-table",
        "tune PATHS --out TABLE.json",
        "the best algorithms, by setting and size",
        ("hpccoll.analysis.choice_table:TuneTable",),
    ),
    OutputSchema(
        "judged-table",
        "tune PATHS --judge TABLE.json --json",
        "what the choices of a table cost in other results",
        ("hpccoll.analysis.judge_table:TableJudgementJson",),
    ),
    OutputSchema(
        "fit",
        "fit PATHS --json",
        "machines that were fitted, and their errors on what was not fitted",
        ("hpccoll.model.run_model:RunModel",),
        is_array=True,
    ),
    OutputSchema(
        "machine",
        "fit PATHS --out MACHINE.json; list clusters NAME --json",
        "a machine: links, nodes, memory and what was published of it",
        ("hpccoll.model.machine_file:MachineFile",),
    ),
    OutputSchema(
        "predict",
        "predict --json",
        "predicted times, one for each algorithm, number of nodes and size",
        ("hpccoll.model.predict:PredictionJson",),
        is_array=True,
    ),
    OutputSchema(
        "predict-question",
        "predict --question best --json",
        "the best algorithm for each number of nodes and size",
        ("hpccoll.model.best_choice:QuestionJson",),
        is_array=True,
    ),
    OutputSchema(
        "plan",
        "plan CONFIG --json",
        "the jobs and cases of a sweep, and the evidence that jobs require",
        ("hpccoll.render.plan_text:plan_record",),
        left_out=("extensions", "named"),
    ),
    OutputSchema(
        "plan-file",
        "plan CONFIG --out DIR",
        "plan.json of a sweep",
        ("hpccoll.cases.plan:Plan",),
        left_out=("extensions", "named"),
    ),
    OutputSchema(
        "list",
        "list [WORD] --json",
        "collectives, algorithms, transports, variants and workloads, and what each lacks here",
        ("hpccoll.cases.listing:ListingJson",),
    ),
    OutputSchema(
        "list-reference",
        "list sweep|site|machine|clusters|columns|variables|settings --json",
        "the keys of files, datasets, variables or settings",
        ("hpccoll.cli.reference_tables:EntryJson",),
        is_array=True,
    ),
    OutputSchema(
        "list-defects",
        "list defects --json",
        "known defects of communication libraries, drivers and containers",
        ("hpccoll.evidence.defect_table:Defect",),
        is_array=True,
    ),
    OutputSchema(
        "list-schemas",
        "list schemas --json",
        "this and all other schemas by name, below $defs",
        ("hpccoll.cli.schemas:SchemasJson",),
    ),
)
"""Those of hpccoll itself; extensions bring those of their commands."""


def output_schemas() -> dict[str, OutputSchema]:
    """Return all schemas by name, those of extensions last."""
    schemas = {}
    for schema in chain(SCHEMAS, *contributions("schemas")):
        schemas[schema.name] = schema
    return schemas


def find_schema(name: str) -> JsonSchema:
    """Return a schema.

    Raises:
        BadInputError: if there is none of this name.
    """
    schemas = output_schemas()
    if name not in schemas:
        meant = did_you_mean(name, schemas)
        raise BadInputError("NAME", name, f"{meant}a name that 'hpccoll list schemas' prints")
    return schemas[name].json_schema()


def all_schemas() -> JsonSchema:
    """Return a schema that holds all others by name."""
    parts = {}
    for name, schema in output_schemas().items():
        parts[name] = schema.json_schema()
    return {"$schema": DIALECT, "$id": schema_id("all"), "$defs": parts}


def schema_lines() -> Iterator[str]:
    """Yield a line for each schema: its name, what has it, and the command."""
    schemas: Mapping[str, OutputSchema] = output_schemas()
    width = max(map(len, schemas))
    for name, schema in schemas.items():
        yield f"{name:<{width}}  {schema.meaning} (hpccoll {schema.printed_by})"
