"""What is bad as a value, a file, a number or a word, for tests that mutate good inputs."""

DEEP = 10_000
ESCAPE = "\x1b[31m"
ALMOST = "r\N{CYRILLIC SMALL LETTER BYELORUSSIAN-UKRAINIAN I}ng"
"""It looks like the name of an algorithm."""
LEAST = "algorithms: [ring]\nbytes: [8]\nranks: [2]\n"

VALUES = (
    "-1",
    "9" * 5000,
    '"\\0"',
    '"\\e[31mred"',
    '"\\u202e"',
    '"a\\nb"',
    "x" * 10_000,
    "[[[1]]]",
    "[" * DEEP,
    "{a: " * DEEP,
    "&a [*a]",
    "*nowhere",
    "!!python/object/apply:os.system [ls]",
    "!!int x",
    "- 1\n- 2:",
    "\tx",
    "@",
    "%",
    "'",
)
"""What is bad behind any key of a sweep or site file."""

NO_NUMBERS = (
    "true",
    "yes",
    "no",
    "[on]",
    "1.5e",
    "inf",
    "nan",
    ".inf",
    "1e308",
    "1e999",
    "0x10",
    "1:30",
    "two",
    "''",
    "[]",
    str(1 << 63),
    str(10**18),
    "99999999",
    "1000000000000",
    "'1 2'",
    '"\\0"',
    "{a: 1}",
    "9" * 5000,
    "-1",
)
NO_WORDS = ("true", "no", "rign", "1", "ring native", "['']", "Ring", ALMOST)

JSON = (
    "-1",
    "[[]]",
    '"\\u0000"',
    '"\\u001b[31mred"',
    f'"{"x" * 10_000}"',
    "1" + "0" * 30,
    "9" * 5000,
    "1e308",
    "1e999",
    "NaN",
    '{"a": {"b": 1}}',
    "[" * DEEP,
    '{"a":' * DEEP,
    "-Infinity",
    '"\\ud800"',
    "'x'",
)
"""What is bad at any place of a job, plan or table."""

FILES = (
    "",
    "- 1",
    "7",
    "null",
    "a: [1",
    "\0",
    "a\0: 1",
    "\x1b[2J: 1",
    "[" * DEEP,
    "{a: " * DEEP,
    "? [a]\n: 1",
    "<<: 7",
    "a: 1\n---\nb: 2",
    "&a {b: *a}",
    "%YAML 9.9\n---\na: 1",
    "#" * (1 << 18),
    "a: " + "1, " * (1 << 17),
    "x0: &x0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    + "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10)}]\n" for i in range(1, 20)),
)
"""Texts that are no sweep, site, job, plan or table."""

NO_FILES = (
    "zero",
    "fifo",
    "directory",
    "socket",
    "nowhere",
    "loop",
    "x" * 5000,
    "x" * 256,
    "bytes",
    "loop/x",
    "file/x",
    "",
)
"""Names, in the directory of an input, of what no command can read."""

NUMBERS = (
    "9" * 5000,
    "1e14",
    "-1",
    "1.5",
    "",
    "x",
    "0x8",
    str(1 << 64),
    "9" * 19,
    "inf",
    "nan",
    "1e20",
)
"""What is bad as a number on the command line."""

EXTREMES = (
    "0",
    "-1",
    "1",
    "7",
    "400",
    "100000",
    "1000000",
    "16777216",
    str(10**9),
    str(1 << 44),
    str(1 << 63),
    str(10**25),
    "9" * 400,
    "1e308",
    "1e-308",
    "inf",
    "nan",
    "",
    "1-262144",
    "1T",
    "16T",
)
"""Counts, sizes and rates, of which some are valid, and larger than what anybody has time or memory for."""
PARAMETERS = ("channels", "window", "segment", "radix", "groups", "peer", "traffic", "inner")

EFFORTS = [
    f"effort: {{{key}: {value}}}"
    for key in ("warmup", "min_iterations", "timeout")
    for value in NO_NUMBERS
]
VARIANTS = (
    "{'\\0': {A: 1}}",
    '{a: {"B\\0": 1}}',
    '{a: {B: "\\0"}}',
    "{a: {B=C: 1}}",
    f"{{{'v' * 260}: {{A: 1}}}}",
    "{../a: {A: 1}}",
    "{a: {B: [1]}}",
    "{nccl-rign: }",
    "{a: {communicator: {max_ctas: 99999999999999999999}}}",
    '{"a\\e": {A: 1}}',
    f"{{{ALMOST}: {{A: 1}}}}",
    f"{{a: {{{'V' * 300}: 1}}}}",
    f"{{a: {{B: {'x' * 70_000}}}}}",
)
PARAMS = (
    "{ring: {channels: 0}}",
    "{ring: {channels: 1000000}}",
    "{ring: {segment: 99T}}",
    "{rign: {channels: 1}}",
    "{ring: {channels: [true]}}",
    "{ring: {window: [[1]]}}",
    f"{{ring: {{channels: {'9' * 5000}}}}}",
)
SIZES = (
    "{from: 0, to: 8}",
    "{from: 8, to: 4}",
    "{from: 8, to: 99999T}",
    "{from: 8, to: 1G, factor: 1}",
    "17T",
    "8Q",
    "-8",
    "{from: 8, to: 8, factor: true}",
    f"[{', '.join(map(str, range(8, 20_000)))}]",
    "[]",
    "{from: yes}",
)
SWEEPS = (
    *(f"variants: {text}" for text in VARIANTS),
    *(f"params: {text}" for text in PARAMS),
    *(f"bytes: {text}" for text in SIZES),
    *EFFORTS,
    "frob: 1",
    "'bytes': 8",
    "effort: {second: 1}",
    "table: /dev/zero\nalgorithms: auto",
    "table: fifo\nalgorithms: auto",
    "table: bytes\nalgorithms: auto",
    f"table: {'x' * 5000}\nalgorithms: auto",
    'table: "a\\0"\nalgorithms: auto',
    "collectives: all_to_all_v\nalgorithms: native\ntraffic: zero.csv",
    "collectives: all_to_all_v\nalgorithms: native\ntraffic: /dev/zero",
    "collectives: send_recv\nalgorithms: all\npairs: all\nranks: 4096",
    "ranks: [1000000]",
    f"ranks: [{', '.join(map(str, range(1, 1500)))}]",
    "nodes: 262144\nranks: 2",
    "collectives: all\nalgorithms: all\nbytes: {from: 1, to: 8T}\nranks: 4096\nmapping: [block, cyclic]",
)
"""Lines that make LEAST, in place of its own, a sweep with a mistake."""

SITES = (
    "frob: 1",
    "gpus_per_node: 99999",
    "gpus_per_node: h100:0",
    "launcher: 'srun {}'",
    "network: ib",
    "launcher: 'srun {0.__class__}'",
    "sbatch: --array=1",
    "sbatch: ['-x']",
    'environment: {A: "\\0"}',
    "environment: {A=B: 1}",
    "container: {runtime: docker}",
    "container: {runtime: pyxis, image: 1, mounts: 7}",
    "aggregators: {feature: x}",
)

PLANNING = (
    "--profile=locla",
    "--profile=",
    "--site=nowhere",
    f"--site={ESCAPE}",
    "--siet=hgx",
    "--out=/proc/nowhere/x",
    "--out=" + "x" * 5000,
    "--out=file/x",
    "--out=loop",
    "--json=1",
    "--out=a/\udcff",
    "b.yaml",
    "--profile=" + "x" * DEEP,
)
"""Words that make a command line of ``plan`` or ``sweep`` a bad one."""
