"""The JSON that nccl-tests and rccl-tests write with the option -J, without its environment, which may hold secrets."""

import re
from pathlib import Path
from typing import Any

from hpccoll.cases.case import SINGLE
from hpccoll.common.errors import BadInputError
from hpccoll.common.files import parse_json
from hpccoll.common.limits import RANKS
from hpccoll.interop.benchmark_output import BenchmarkOutput, SuppliedMetadata
from hpccoll.interop.nccl_tests_run import (
    AMD_GPU,
    NCCL_TESTS,
    RCCL_TESTS,
    SUFFIXES,
    ListedDevice,
    PrintedResult,
    PrintedRun,
    add_run,
    check_devices,
    collective_of,
    header_params,
    nccl_version,
)
from hpccoll.interop.printed_bandwidth import MEASURED

OPTIONS = {
    "R": ("local_register", "0"), "D": ("device_implementation", "0"), "x": ("cta_policy", ""), "u": ("unalign", "0"),
    "y": ("stream_null", "0"), "a": ("average", "1"), "z": ("blocking", "01"),
}  # fmt: skip
"""Options that change what is measured, with the values that do not; only the command line in the JSON names them."""
JSON_MEASURED = "time", "alg_bw", "bus_bw"
"""The keys of ``MEASURED`` in the JSON."""


def read_nccl_tests_json(path: Path, text: str, output: BenchmarkOutput, given: SuppliedMetadata) -> None:
    """Add the results of the JSON to an output, as ``read_nccl_tests``."""
    try:
        content = parse_json(text)
    except ValueError as error:
        raise BadInputError("FILE", str(path), f"whole JSON of nccl-tests ({error})") from None
    try:
        _add_json(path, content, output, given)
    except BadInputError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise BadInputError("FILE", str(path), f"JSON as nccl-tests writes it ({reason})") from None


def _add_json(path: Path, content: Any, output: BenchmarkOutput, given: SuppliedMetadata) -> None:
    """Add the results of the JSON, as those of a table."""
    config, arguments = content["config"], [str(each) for each in content["args"]]
    suite = (
        RCCL_TESTS if any(AMD_GPU.search(str(each.get("device_info"))) for each in config["devices"]) else NCCL_TESTS
    )
    output.source = output.program = suite.source
    output.library = f"{suite.library} {nccl_version(int(content['nccl_version']))}"
    output.truncated = "average_bus_bandwidth" not in content
    run = PrintedRun(str(path), output.library, suite, collective=collective_of(str(path), arguments[0]))
    run.per_process = per_process = int(config["nthreads"]) * int(config["ngpus"])
    fields = {"graph": int(config.get("graph", 0)), "agg iters": int(config.get("aggregated_iterations", 1))}
    run.params = header_params(fields) | _options(" ".join(arguments[1:]))
    if str(config.get("blocking_collectives")).lower() == "true":
        run.timing = SINGLE
    # A process lists its first device only, whichever number of threads and devices it has.
    RANKS.check(f"{path}: devices", per_process * len(config["devices"]))
    for each in config["devices"]:
        process, place = (str(each["hostname"]), str(each["pid"])), f"{each['device']} {each['device_hex']}"
        run.devices += [
            ListedDevice(int(each["rank"]) + index, str(each["group"]), process, "" if index else place)
            for index in range(per_process)
        ]
    for position, row in enumerate(content["results"], 1):
        where = f"{path}: result {position}"
        cells = {key: str(row[key]).strip() for key in ("size", "count", "type", "redop", "root")}
        for placement in SUFFIXES:
            if (values := row.get(placement)) is None:
                continue
            if "time" not in values:
                raise BadInputError(where, "cpu_time", "time: the option -C measures the CPU, not the operation")
            statistics = (row.get(f"{placement}_per_iter") or {}).items()
            reported = {**cells, **{key: str(value) for key, value in (*values.items(), *statistics)
                                    if not isinstance(value, list)}}  # fmt: skip
            wrong = values.get("nwrong")
            measured = {name: str(values[key]) for name, key in zip(MEASURED, JSON_MEASURED, strict=True)}
            measured["#wrong"] = "N/A" if wrong is None else str(wrong)
            run.results.append(PrintedResult(where, placement, cells, measured, reported))
    check_devices(run, given)
    add_run(path, run, output, given)


def _options(arguments: str) -> dict[str, int]:
    """Return the parameters of the options that only the command line names, unless at the default."""
    params = {}
    for letter, (name, defaults) in OPTIONS.items():
        values = re.findall(rf"(?:^| )(?:-{letter} ?|--{name}[= ])([0-9]{{1,9}})\b", arguments)
        if values and values[-1] not in defaults:
            params[name] = int(values[-1])
    return params
