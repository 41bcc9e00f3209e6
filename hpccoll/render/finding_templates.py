"""The sentences of the report: one template for each kind of finding.

A template is a format string of the finding's values, or a function of them for a sentence with optional parts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any, TypeAlias

from hpccoll.common.units import format_count, format_rounded_size, format_seconds, format_size
from hpccoll.render.host_ranges import jobs_and_hosts
from hpccoll.render.report_finding import ReportFinding
from hpccoll.render.wire_bandwidth import UNUSED_PORT_SHARE, format_rate

Values: TypeAlias = Mapping[str, Any]
Text: TypeAlias = str | Callable[[Values], str]
"""A format string of values, or a function of them."""

MAX_REASONS = 2
"""Reasons that a sentence quotes; the table of rows has all of them."""


@dataclass(frozen=True, slots=True)
class Template:
    """How a kind of finding is written.

    Args:
        title: what the finding is about; empty for findings that the page begins with.
        sentence: the statement.
        explanation: what it means and what to do, which the page folds.
    """

    title: Text
    sentence: Text
    explanation: Text = ""


class _UnitFormatter(Formatter):
    """Format strings with units.

    ``{S:size}``, ``{S:rounded}``, ``{t:time}``, ``{r:rate}``, ``{names:list}``, ``{n:count row}``.
    """

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("count "):
            return format_count(value, format_spec.removeprefix("count "))
        units: Mapping[str, Callable[[Any], str]] = {
            "size": format_size,
            "rounded": format_rounded_size,
            "time": format_seconds,
            "rate": format_rate,
            "list": ", ".join,
        }
        return units[format_spec](value) if format_spec in units else str(format(value, format_spec))


def _write(text: Text, values: Values) -> str:
    return _UnitFormatter().vformat(text, (), values) if isinstance(text, str) else text(values)


def render_finding(finding: ReportFinding) -> tuple[str, str]:
    """Return the title and the sentence of a finding."""
    template = TEMPLATES[finding.kind]
    return _write(template.title, finding.values), _write(template.sentence, finding.values)


def explain_finding(finding: ReportFinding) -> str:
    """Return the explanation of a finding; empty without one."""
    return _write(TEMPLATES[finding.kind].explanation, finding.values)


def _size_and_shape(values: Values) -> str:
    size = "" if values["nbytes"] is None else format_size(values["nbytes"])
    return ", ".join(filter(None, (size, values["shape"])))


def _where(values: Values) -> str:
    """Return the coordinates of a point: ``2 ranks at 1 KiB, in place``."""
    size = "" if values["nbytes"] is None else f" at {format_size(values['nbytes'])}"
    return ", ".join(filter(None, (f"{values['shape']}{size}", values["pair"], values["placement"])))


def _highest_busbw(values: Values) -> str:
    low, high = (format_rate(end) for end in values["interval"] or (0.0, 0.0))
    interval = "" if low == high else f" ({low} to {high} by its 95 % interval)"
    parts = [f"{format_rate(values['busbw'])}{interval} by {values['series']} with {_where(values)}"]
    if (algbw := values["offloaded_algbw"]) is not None:
        parts.append(f", algbw {format_rate(algbw)}: where switches reduce, busbw assumes bytes that no link carries")
    auto = " auto, which chooses among these and is left out, reached {auto_busbw:rate}."
    return "".join(parts) + "." + (_write(auto, values) if values["auto_busbw"] else "")


def _fallback(values: Values) -> str:
    reasons: Sequence[str] = values["reasons"]
    others = len(reasons) - MAX_REASONS
    more = [f"and {format_count(others, 'other reason')}"] if others > 0 else []
    executed = f"{values['executed']} ran" if values["executed"] else "no evidence shows what ran"
    why = "; ".join((*reasons[:MAX_REASONS], *more)) or "no log gives a reason"
    return _write("{series}: {requested} was requested, but ", values) + (
        f"{executed} in {format_count(values['rows'], 'row')}: {why}."
    )


def _library(values: Values) -> str:
    return _write("{summary}." if values["shared"] else "{series:list}: {summary}.", values)


def _library_model(values: Values) -> str:
    ends = (f"{ratio:.2f}{f' (at {format_size(n)})' if n else ''}" for ratio, n in values["ratios"])
    return f"{values['series']} takes {' to '.join(dict.fromkeys(ends))} times as long as NCCL expects of what ran."


def _mapping_cost(values: Values) -> str:
    return "; ".join(map(_mapping_clause, values["series"])) + "."


def _mapping_clause(clause: Values) -> str:
    if not clause["clear"]:
        return _write("{name}: no mapping is clearly slower ({slow} {ratio:.2f}x)", clause)
    text = "{name} takes {ratio:.2f} times as long {slow} as {fast}"
    if clause["rack_sizes"]:
        text += ", and sends {rack_sizes[1]:.3g} S between racks instead of {rack_sizes[0]:.3g} S"
    return _write(text, clause)


def _pair_extremes(values: Values) -> str:
    unit = "rate" if values["quantity"] == "busbw" else "time"
    text = f"the median of {{pairs:count pair}} is {{median:{unit}}}; "
    if values["clear"]:
        text += (
            f"the fastest pair is {{fastest}} with {{fastest_value:{unit}}}; the slowest pair is {{slowest}} with "
            f"{{slowest_value:{unit}}}, {{ratio:.2f}} times as long."
        )
    else:
        text += f"no pair is clearly slower ({{fastest_value:{unit}}} to {{slowest_value:{unit}}})."
    return _write(text, values)


def _wire_share(values: Values) -> str:
    text = "{series} reaches {percent:.0f} % of {wire} at {nbytes:size} on {shape}"
    return "; ".join(_write(text, {**clause, "percent": 100 * clause["share"]}) for clause in values["best"]) + "."


def _wire_uncalibrated(values: Values) -> str:
    text = (
        "a wire carried {percent:.1f} % of the TCP throughput of {wire} when the testbed came up: bring it up again "
        "while the machine is idle."
    )
    return _write(text, {**values, "percent": 100 * values["ratio"]})


def _rails(values: Values) -> str:
    at = "" if values["nbytes"] is None else f" at {format_size(values['nbytes'])}"
    return f"sent by a node on {values['shape']}{at}: {'; '.join(map(_rail_clause, values['series']))}."


def _rail_clause(clause: Values) -> str:
    machine = f" on {clause['machine']}" if clause["machine"] else ""
    ports = ", ".join(f"{port} {part:.0%}" for port, part in clause["ports"].items())
    unused = f", at most {100 * UNUSED_PORT_SHARE:g} % on {', '.join(clause['unused'])}" if clause["unused"] else ""
    gain = ""
    if clause["gain"]:
        launch = " (another launch)" if clause["other_launch"] else ""
        gain = _write(", {gain:.2f}x as fast as {base}" + launch, clause)
    return f"{clause['name']}{machine} through {ports}{unused}{gain}"


def _between_rounds(values: Values) -> str:
    text = (
        "the slowest round of a case takes {median_ratio:.2f} times as long as its fastest round (median of "
        "{cases:count case}); at most {max_ratio:.2f} times: {series} with {where}."
    )
    return _write(text, {**values, "where": _where(values)})


def _measured_once(values: Values) -> str:
    if not values["resumed_cases"]:
        return "each case was measured in one launch."
    resumed = "each case was measured once, the rounds of {resumed_cases:count case} in several launches"
    return _write(resumed + ": an interrupted job was resumed.", values)


def _repeated_points(values: Values) -> str:
    text = "{points:count point} measured more than once, {disagreeing} of them with disjoint intervals"
    if not values["disagreeing"]:
        return _write(text + ".", values)
    text += "; the largest difference is {max_ratio:.2f}x: {series} with {where}."
    return _write(text, {**values, "where": _where(values)})


def _convergence_remedy(values: Values) -> str:
    remedy = "start fewer ranks, which wait for a core here" if values["oversubscribed"] else "take an idle machine"
    return f"Give each case more time (seconds and max_iterations of effort; --seconds of hpccoll run), or {remedy}."


def _oversubscribed(values: Values) -> str:
    *most, last = map(str, values["ranks"])
    ranks = f"{', '.join(most)} and {last}" if most else last
    aggregators = f" and {format_count(values['aggregators'], 'aggregator')}" if values["aggregators"] else ""
    return f"with {ranks} ranks{aggregators} there are more processes than cores: times include waiting for a core."


def _machines(values: Values) -> str:
    return f"lines and comparisons are separate for each of {'; '.join(values['machines'])}."


def _mixed_hosts(values: Values) -> str:
    text = "lines join launches whose hosts are not all among those of the largest launch: "
    return f"{text}{jobs_and_hosts(values['launches'])}."


def _evidence_missing(values: Values) -> str:
    probe = " The probe {probe_failure}." if values["probe_failure"] else ""
    text = "The variant {variant} does not show its expected evidence: {expected}." + probe + " In {jobs:list}."
    return _write(text, values)


def _busy_machine(values: Values) -> str:
    parts = []
    if values["other_cores"] is not None:
        names = f" ({', '.join(values['names'])})" if values["names"] else ""
        parts.append(_write("other processes used up to {other_cores:.2f} cores of {host}", values) + names)
    if values["stolen"] is not None:
        parts.append(f"up to {100 * values['stolen']:.1f} % of the CPU time went to other virtual machines")
    where = _write("in {launches} of {all_launches:count run}", values)
    text = f"{' and '.join(parts)}, {where}. Small leads may be chance; measure again on an idle machine."
    return text[0].upper() + text[1:]


MAX_GPUS = 4
"""GPUs that a sentence names; the exported rows have all of them."""


def _gpus_throttled(values: Values) -> str:
    all_cases = format_count(values["cases"], "case")
    gpus = [f"{gpu} in {cases} of {all_cases} ({', '.join(why)})" for gpu, cases, why in values["gpus"]]
    return f"Clocks of GPUs were lowered: {_some_gpus(gpus)}. Check cooling and power supply, and measure again."


def _gpu_clocks_differ(values: Values) -> str:
    gpus = [
        f"{gpu} at {100 * share:.0f} % of the median clock in {format_count(cases, 'case')}"
        for gpu, cases, share in values["gpus"]
    ]
    text = f"Clocks of GPUs are more than {100 * values['share']:g} % below those of the others: {_some_gpus(gpus)}."
    return f"{text} A collective waits for the slowest GPU: compare the clock and power limits (nvidia-smi -q)."


def _some_gpus(gpus: Sequence[str]) -> str:
    others = len(gpus) - MAX_GPUS
    return "; ".join((*gpus[:MAX_GPUS], *([f"and {format_count(others, 'other GPU')}"] if others > 0 else [])))


def _of_workload(values: Values) -> str:
    """Return the model, the ranks and further words: ``resnet50 on 4 nodes, 2 micro-batches``."""
    return ", ".join((f"{values['model']} on {values['shape']}", *values.get("details", ())))


def _overlap(values: Values) -> str:
    return f"{_of_workload(values)}: overlap hides {'; '.join(map(_overlap_clause, values['algorithms']))}."


def _overlap_clause(clause: Values) -> str:
    if not clause["clear"]:
        return _write("no clear part of {of:time} with {algorithm}", clause)
    text = "{hidden:time} of {of:time} ({percent:.0f} %) with {algorithm}"
    return _write(text, {**clause, "percent": 100 * clause["hidden"] / clause["of"]})


def _limit(limit: int) -> str:
    return format_size(limit) if limit else "the default"


def _best_bucket(values: Values) -> str:
    worse = [f"{_limit(each['bucket'])} costs {100 * each['cost']:.0f} %" for each in values["costs"] if each["clear"]]
    equal = [_limit(each["bucket"]) for each in values["costs"] if not each["clear"]]
    tie = f"{_listed(equal)} {'is' if len(equal) == 1 else 'are'} not clearly slower" if equal else ""
    scale = f" (limits of the full model; here divided by {values['scale']})" if values["scale"] > 1 else ""
    best = f"{_limit(values['bucket'])} is best" if worse else "no limit is clearly the best"
    parts = "; ".join(filter(None, (best, ", ".join(worse), tie if worse else "")))
    return f"{values['model']} on {values['shape']}, {values['algorithm']}: {parts}{scale}."


def _listed(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _last_bucket(values: Values) -> str:
    text = (
        "{model} on {shape}: the last of {buckets} buckets, {nbytes:rounded}, is never hidden: it is ready when the "
        "backward pass has ended, and takes {seconds:time} ({percent:.0f} % of the step) with {algorithm}."
    )
    return _write(text, {**values, "percent": 100 * values["share"]})


def _null_overhead(values: Values) -> str:
    text = "without communication the step takes {excess:time} ({percent:.1f} %) more than its computation"
    several = " in {workloads} of {of:count workload}, most of all {where}"
    where = _of_workload(values)
    how = text + (several if values["workloads"] > 1 else ": {where}")
    return _write(how + ".", {**values, "percent": 100 * values["share"], "where": where})


def _null_remedy(values: Values) -> str:
    remedy = "start fewer ranks, which wait for a core here" if values["oversubscribed"] else "take an idle machine"
    return f"The harness or the machine delays computations: exposed times leave that out. To lower it, {remedy}."


def _below_null(values: Values) -> str:
    more = f", and {format_count(values['rows'] - 1, 'other step')} likewise" if values["rows"] > 1 else ""
    return _write(
        "{where}: with {algorithm} the step takes {seconds:time} less than without communication{more}: something else "
        "slowed the null step down.", {**values, "where": _of_workload(values), "more": more},
    )  # fmt: skip


def _no_product(values: Values) -> str:
    text = "{none} of {computations:count computation} are too small for a product of matrices, and take no time"
    several = " in {workloads} of {of:count workload}, most of all {where}"
    how = text + (several if values["workloads"] > 1 else ": {where}")
    return _write(how + ".", {**values, "where": _of_workload(values)})


TEMPLATES: Mapping[str, Template] = {
    # Findings that the page begins with.
    "ranks_stalled": Template("", "{cause}. Rows of the remaining ranks are exported, not drawn. In {jobs:list}."),
    "stall_resolved": Template(
        "",
        "{cause}. Rows of the remaining ranks are exported, not drawn; a later launch measured the whole job. In "
        "{jobs:list}.",
    ),
    "network_mismatch": Template("", "{mismatch}. Expected, because {reason}. In {jobs:list}."),
    "control_failed": Template("", "The negative control {variant} failed: {evidence}. In {jobs:list}."),
    "evidence_missing": Template("", _evidence_missing),
    "control_missing": Template(
        "",
        "{variant} has no negative control: {control}, which must not show its evidence, left no logs. In {jobs:list}.",
    ),
    "several_executors": Template(
        "",
        "The compiled executor measured {rows[compiled]:count row}; the Python executor measured {rows[python]}, whose "
        "series are marked (python). Each of its operations includes microseconds of Python, which are most of "
        "the time of a small message. Lines and ratios are separate for each executor.",
    ),
    "far_gpus": Template(
        "",
        "{number:count rank} (the first is rank {first}) had no CPU on the NUMA node of their GPU, so that small "
        "messages take longer. Bind ranks next to their GPUs (srun --distribution, --cpu-bind), or list the GPUs in "
        "the order of the ranks (CUDA_VISIBLE_DEVICES). In {jobs:list}.",
    ),
    "hidden_gpus": Template(
        "",
        "{number:count rank} saw one GPU only, and ranks of the same node used others. If Slurm hides those from the "
        "rank (--gpus-per-task, --gpu-bind), messages go through host memory instead of NVLink or PCIe. Do: srun "
        "--gpus-per-node=N --gpu-bind=none. In {jobs:list}.",
    ),
    "busy_machine": Template("", _busy_machine),
    "gpus_throttled": Template("", _gpus_throttled),
    "gpu_clocks_differ": Template("", _gpu_clocks_differ),
    # Findings about the rows of a group, in the order of the page.
    "fallback": Template("Fallback", _fallback),
    "library": Template("Library", _library),
    "library_model": Template("NCCL's model", _library_model),
    "mapping_cost": Template(lambda values: f"Mapping, {_size_and_shape(values)}", _mapping_cost),
    "pair_extremes": Template(lambda values: f"{values['series']}, {_size_and_shape(values)}", _pair_extremes),
    "highest_busbw": Template("Highest busbw", _highest_busbw),
    "wire_share": Template("Share of the wire rate", _wire_share),
    "wire_uncalibrated": Template("Wire not calibrated", _wire_uncalibrated),
    "rails": Template("Rails", _rails),
    "overlap": Template(
        "Overlap",
        _overlap,
        "The step with overlap is compared with the same step that synchronises gradients after the backward pass; "
        "without overlap everything is exposed.",
    ),
    "best_bucket": Template("Buckets", _best_bucket),
    "last_bucket": Template("Last bucket", _last_bucket),
    "null_missing": Template(
        "Exposed time unknown",
        "{workloads} of {of:count workload} have no step without communication.",
        "Add the algorithm null: exposed communication is the time by which a step is longer than that of null.",
    ),
    "null_overhead": Template("Cost of the harness", _null_overhead, _null_remedy),
    "below_null": Template("Below null", _below_null),
    "no_product": Template(
        "Computations without products",
        _no_product,
        "What overlaps with them is exposed. Take more samples, or a smaller scale.",
    ),
    "no_interval": Template(
        "No intervals",
        "{bare} of {rows:count row} have no 95 % interval, which takes {least} iterations in each round: nothing is "
        "clearly faster than these.",
    ),
    "not_converged": Template(
        "Wide intervals",
        "the 95 % interval of {loose} of {rows:count row} did not become narrow enough in time.",
        _convergence_remedy,
    ),
    "between_rounds": Template("Between rounds", _between_rounds),
    "measured_once": Template(
        "Between launches",
        _measured_once,
        "An interval bounds the median within its launch; another launch may differ by more, most of all on a shared "
        "machine. Do not choose by a lead of a few per cent.",
    ),
    "repeated_points": Template("Between launches", _repeated_points),
    "wrong_results": Template("Wrong", "{rows:count row} with a wrong result, not drawn: {series:list}."),
    "oversubscribed": Template("Oversubscribed", _oversubscribed),
    "several_machines": Template("Several machines", _machines),
    "rounds_on_different_hosts": Template(
        "Different hosts",
        "the rounds of {cases:count case} were measured on different hosts: an interrupted job was resumed elsewhere.",
    ),
    "mixed_hosts": Template("Different hosts", _mixed_hosts),
}
"""The template of every kind of finding."""
