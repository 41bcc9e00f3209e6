"""The fit of a machine to measured collectives: a regression on what is on their critical paths.

The time of a message is a curve over its size for each tier, through values at sizes a factor 8
apart. Between two of them it is a straight line, rises with the size, and less than in proportion
to it. The other parameters are the overhead of a message that follows others, the rate of a port
that several ranks share, the rates of folds, of copies and of new memory, and how far apart ranks
start. Where a rank sends parts of the vector over several ports, a further port has an overhead,
and all of them together a rate; on a torus, a link has a latency, and a rate that messages share.
Where ranks first tell each other the addresses of their buffers, such a message has an overhead,
and so has a segment that is folded by itself.
If the larger jobs have other messages, as where a library or a batch system treats them
differently, these have curves of their own.

The regression minimises the differences of the logarithms of measured and modelled times, with the
weights of a Cauchy distribution, so that rows which nothing explains do not bend the curves. Weak
priors hold what the rows do not tell; a parameter whose interval is as wide as its prior is reported
as undetermined. Intervals come from a bootstrap over launches, because the rows of a launch share
its errors.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hpccoll.model.critical_path import PathAddresses, PathFold, PathMessage, RowWork
from hpccoll.model.memory_work import MemoryWork

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

KNOTS = tuple(8 ** (k + 1) for k in range(9))
"""The sizes, in bytes, of the values of a curve: 8 B to 128 MiB."""

KEPT_MEMORY_BYTES = 32 << 20
"""The largest buffer that the C library keeps between calls."""

CAUCHY_SCALES = 2.0
"""From how many typical errors on a row loses weight."""

TYPICAL_ERROR = 0.2
"""The relative error of a row that is neither small nor large."""

CLEARLY_BETTER = 0.8
"""The part of the misfit that is left if curves of their own for larger jobs are worth it."""

LEAST_ERROR = 0.03
"""The least typical relative error of a row."""

MAX_ITERATIONS = 60

CONVERGED = 1e-4
"""The change of all parameters in an iteration below which it is the last one."""

ROUGH_ITERATIONS = 4
"""The first iterations, in which the typical error is ``ROUGH_ERROR``; later ones estimate it."""

ROUGH_ERROR = 0.3
"""The typical relative error of a row in the first iterations."""

LARGEST_STEP = 0.7
"""How much an iteration changes a parameter at most."""

NORMAL_DEVIATIONS = 1.4826
"""The standard deviation of a normal distribution over its median absolute deviation."""

NODE = "node"

Parameter: TypeAlias = tuple[str, str, int]
"""The name of a parameter, the curve or the group of jobs that it belongs to, and its number there."""

Term: TypeAlias = list[tuple[int, float]]
"""A sum of quantities, each with its factor."""


@dataclass(frozen=True, slots=True)
class FittedRow:
    """A measured time, and what its operation consists of."""

    seconds: float
    work: Mapping[RowWork, int]  # what is on its critical path, and how often
    memory: MemoryWork
    nodes: int
    ranks: int
    run: str  # the launch that measured it
    dtype: str = "float32"
    ports: int = 1  # the ports of each rank; each sends its part of the vector in the same steps


class _RowTerms(NamedTuple):
    """The terms of rows as arrays: work that a row repeats, each with sums whose largest is its time."""

    factors: Floats  # of each quantity in each sum, [sum, quantity]
    first_sum: Ints  # the first sum of each work, whose sums follow one another
    work: Ints  # the work that a sum belongs to
    row: Ints  # the row that a work belongs to
    repeats: Floats  # how often the row has the work
    rows: int

    @classmethod
    def of(cls, rows: Sequence[Sequence[tuple[int, list[Term]]]], quantities: int) -> "_RowTerms":
        """Return the arrays of terms, for a number of quantities."""
        sums: list[Term] = []
        first_sum: list[int] = []
        work_of_sum: list[int] = []
        row_of_work: list[int] = []
        counts: list[int] = []
        for row, terms in enumerate(rows):
            for count, alternatives in terms:
                work_of_sum += [len(first_sum)] * len(alternatives)
                first_sum.append(len(sums))
                row_of_work.append(row)
                counts.append(count)
                sums += alternatives
        factors = np.zeros((len(sums), quantities))
        for place, term in enumerate(sums):
            for number, factor in term:
                factors[place, number] += factor
        return cls(
            factors,
            np.array(first_sum, np.int64),
            np.array(work_of_sum, np.int64),
            np.array(row_of_work, np.int64),
            np.array(counts, float),
            len(rows),
        )

    def seconds(self, quantities: Floats) -> tuple[Floats, Floats]:
        """Return the times of the rows, and how often each has each quantity, [row, quantity]."""
        taken = self.factors @ quantities
        longest = np.maximum.reduceat(taken, self.first_sum)
        candidates = np.flatnonzero(taken == longest[self.work])
        _, first = np.unique(self.work[candidates], return_index=True)
        chosen = self.factors[candidates[first]] * self.repeats[:, None]
        used = np.zeros((self.rows, len(quantities)))
        np.add.at(used, self.row, chosen)
        return np.maximum(used @ quantities, 1e-12), used


class Prior(NamedTuple):
    """A normal distribution of a sum of parameters."""

    sum: Mapping[int, float]  # the factor of each parameter
    mean: float
    deviation: float


@dataclass(slots=True)
class CollectiveModel:
    """The parameters of a machine, and the times that follow from them.

    Args:
        larger_from: the number of nodes from which jobs have curves of their own; None if all jobs
            share them.
        shares_ports: whether several ranks share a port in some of the rows.
    """

    larger_from: int | None = None
    shares_ports: bool = False  # whether several ranks share a port in some of the rows
    numbers: dict[Parameter, int] = field(default_factory=dict)
    values: Floats = field(default_factory=lambda: np.zeros(0))  # logarithms, and slopes as logits
    covariance: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    # the parameters that the fit has determined, with their priors
    fitted: dict[Parameter, int] = field(default_factory=dict)
    typical_error: float = 1.0
    weights: Floats = field(default_factory=lambda: np.zeros(0))  # of the fitted rows, 0 to 1

    def number(self, name: str, group: str, number: int = 0) -> int:
        """Return the number of a parameter."""
        return self.numbers.setdefault((name, group, number), len(self.numbers))

    def jobs(self, nodes: int) -> str:
        """Return the group of jobs that a number of nodes belongs to."""
        return "larger" if self.larger_from and nodes >= self.larger_from else "all"

    def curve(self, tier: str, nodes: int) -> str:
        """Return the name of the curve of a tier; messages inside a node are alike in all jobs."""
        return tier if tier == NODE else f"{tier} {self.jobs(nodes)}"

    def quantities(self, values: Floats) -> tuple[Floats, Floats]:
        """Return all quantities, in seconds, and their derivatives by the parameters."""
        quantities = np.exp(values)
        derivatives = np.diag(quantities)
        for (name, group, knot), place in sorted(self.numbers.items()):
            if name != "curve" or knot == 0:
                continue
            before = self.numbers["curve", group, knot - 1]
            steps = math.log(KNOTS[knot] / KNOTS[knot - 1])
            slope = 1 / (1 + math.exp(-values[place]))
            quantities[place] = quantities[before] * math.exp(steps * slope)
            derivatives[place] = derivatives[before] * (quantities[place] / quantities[before])
            derivatives[place, place] += quantities[place] * steps * slope * (1 - slope)
        return quantities, derivatives

    def terms(self, row: FittedRow) -> Iterator[tuple[int, list[Term]]]:
        """Yield how often each kind of work counts, and the sums whose largest is its time."""
        for work, count in row.work.items():
            if isinstance(work, PathFold):
                # a rank folds what its ports received, one after another
                yield count, [[(self.number("fold", row.dtype), work.nbytes * row.ports)]]
            elif isinstance(work, PathAddresses):
                yield count, [self._address_term(work, row)]
            else:
                yield count, self._message_terms(work, row)
        jobs = self.jobs(row.nodes)
        yield 1, [[(self.number("skew", jobs), math.log2(row.ranks))]]
        if row.memory.copied_bytes:
            yield 1, [[(self.number("copy", ""), row.memory.copied_bytes)]]
        if row.memory.buffer_bytes > KEPT_MEMORY_BYTES:
            ranks_per_node = row.ranks / row.nodes
            sharing = row.memory.buffer_bytes * (ranks_per_node - 1)
            fresh: Term = [(self.number("fresh", ""), row.memory.buffer_bytes)]
            if sharing:
                fresh.append((self.number("fresh of node", ""), sharing))
            yield 1, [fresh]

    def _address_term(self, addresses: PathAddresses, row: FittedRow) -> Term:
        alone = PathMessage(
            addresses.tier, addresses.nbytes, addresses.before, addresses.nbytes, 0, received=True
        )
        (term,) = self._message_terms(alone, replace(row, ports=1))
        return [*term, (self.number("address", ""), 1)]

    def _message_terms(self, message: PathMessage, row: FittedRow) -> list[Term]:
        """Return the times that a message would take if it were held up by one resource alone: the longest counts."""
        ports = row.ports
        curve = self.curve(message.tier, row.nodes)
        knots = [self.number("curve", curve, knot) for knot in range(len(KNOTS))]
        # the knots before and after its size; the first or the last two if it is beyond these
        place = sum(message.nbytes >= size for size in KNOTS[1:-1])
        low, high = knots[place], knots[place + 1]
        width = KNOTS[place + 1] - KNOTS[place]
        overhead = self.number("overhead", "")
        queued: Term = []
        if message.received:
            # to the value at size 0 of the line between two knots
            share = KNOTS[place] / width
            queued += [(low, 1 + share), (high, -share)]
            if message.before:
                queued.append((overhead, message.before))
        else:
            queued.append((overhead, 1 + message.before))
        passing: Term = [(high, message.rank_bytes / width), (low, -message.rank_bytes / width)]
        if ports > 1:
            queued.append((self.number("further port", ""), ports - 1))
        if message.hops and message.received:
            queued.append((self.number("hop", ""), message.hops))
        alternatives = [queued + passing]
        if ports > 1:
            together = self.number("ports", "")
            alternatives.append([*queued, (together, message.rank_bytes * ports)])
        if message.link_bytes:
            alternatives.append([*queued, (self.number("link", ""), message.link_bytes)])
        if message.segments:
            # ports take turns at folding
            folds: Term = [
                (self.number("fold", row.dtype), message.nbytes * ports),
                (self.number("segment", ""), message.segments * ports),
            ]
            alternatives.append(queued + folds)
        if self.shares_ports and message.port_bytes:
            port = self.number("port", self.jobs(row.nodes))
            self.number("port", "all")
            alternatives.append([*queued, (port, message.port_bytes)])
        return alternatives

    def seconds(self, values: Floats, terms: "_RowTerms") -> tuple[Floats, Floats]:
        """Return the times of rows, by their terms, and the derivatives of their logarithms by the parameters."""
        quantities, derivatives = self.quantities(values)
        seconds, used = terms.seconds(quantities)
        return seconds, used @ derivatives / seconds[:, None]

    def _row_terms(self, rows: Sequence[FittedRow]) -> "_RowTerms":
        """Return the terms of rows, after numbering all parameters that they and the priors have."""
        terms = [list(self.terms(row)) for row in rows]
        self._complete_curves()
        return _RowTerms.of(terms, len(self.numbers))

    def _start(self) -> Floats:
        """Return the values before the first iteration, the means of the priors."""
        start = np.zeros(len(self.numbers))
        for (name, group, number), place in self.numbers.items():
            start[place] = _start_value(name, group, number)
        return start

    def _extend(self) -> None:
        """Give parameters that no fitted row has the values of those that they are alike, or typical ones."""
        fitted = len(self.values)
        if len(self.numbers) == fitted:
            return
        values = self._start()
        values[:fitted] = self.values
        for parameter, place in self.numbers.items():
            base = self.numbers.get(_alike(parameter), place)
            if place >= fitted and base < fitted:
                values[place] = values[base]
        self.values = values

    def priors(self) -> list[Prior]:
        """Return the priors: each value is near its start, and curves of larger jobs are near those of all."""
        priors = []
        start = self._start()
        for (name, group, number), place in self.numbers.items():
            base = _alike((name, group, number))
            if base in self.numbers and self.numbers[base] != place:
                deviation = 1 if "larger" in group else 0.5
                priors.append(Prior({place: 1, self.numbers[base]: -1}, 0, deviation))
            else:
                deviation = 1.5 if name == "curve" and number else 2.5
                priors.append(Prior({place: 1}, start[place], deviation))
        return priors

    def fit(self, rows: Sequence[FittedRow], counts: Sequence[float] | None = None) -> None:
        """Fit the parameters.

        Args:
            rows: the rows.
            counts: how often each row counts [once].
        """
        terms = self._row_terms(rows)
        measured = np.log([row.seconds for row in rows])
        prior_matrix, prior_means = self._prior_equations()
        repeats = np.ones(len(rows)) if counts is None else np.array(counts, float)
        values = self._start() if len(self.values) != len(self.numbers) else self.values
        scale = ROUGH_ERROR
        for iteration in range(MAX_ITERATIONS):
            seconds, derivatives = self.seconds(values, terms)
            errors = np.log(seconds) - measured
            if iteration >= ROUGH_ITERATIONS:
                typical = NORMAL_DEVIATIONS * float(np.median(np.abs(errors[repeats > 0])))
                scale = max(LEAST_ERROR, typical)
            weights = 1 / (1 + (errors / (CAUCHY_SCALES * scale)) ** 2)
            roots = np.sqrt(repeats * weights) / scale
            matrix = np.concatenate([derivatives * roots[:, None], prior_matrix])
            rest = np.concatenate([errors * roots, prior_matrix @ values - prior_means])
            normal = matrix.T @ matrix
            step = np.linalg.solve(normal + 1e-6 * np.eye(len(values)), -matrix.T @ rest)
            step = np.clip(step, -LARGEST_STEP, LARGEST_STEP)
            values = values + step
            if iteration > ROUGH_ITERATIONS + 1 and np.abs(step).max() < CONVERGED:
                break
        self.values = values
        self.fitted = dict(self.numbers)
        self.covariance = np.linalg.inv(normal)
        self.typical_error = scale
        self.weights = weights

    def _prior_equations(self) -> tuple[Floats, Floats]:
        """Return the priors as equations of the parameters, in units of their deviations: a matrix and the means."""
        priors = self.priors()
        matrix = np.zeros((len(priors), len(self.numbers)))
        for line, prior in enumerate(priors):
            for place, factor in prior.sum.items():
                matrix[line, place] = factor / prior.deviation
        means = np.array([prior.mean / prior.deviation for prior in priors])
        return matrix, means

    def copy(self) -> "CollectiveModel":
        """Return the model, to be fitted again."""
        return replace(self, numbers=dict(self.numbers), values=self.values.copy())

    def spread(self) -> Mapping[Parameter, float]:
        """Return the standard deviation of the logarithm of each quantity that the fit has determined."""
        quantities, derivatives = self.quantities(self.values)
        size = len(self.fitted)
        relative = derivatives[:size, :size] / quantities[:size, None]
        variances = np.diag(relative @ self.covariance @ relative.T)
        return {parameter: math.sqrt(variances[place]) for parameter, place in self.fitted.items()}

    def _complete_curves(self) -> None:
        """Number all values of the curves, and of those that a prior holds them near to."""
        groups = {group for name, group, _ in self.numbers if name == "curve"}
        for group in list(groups):
            groups.add(group.replace("larger", "all"))
        for group in list(groups):
            groups.add(group.replace("fabric", "rack"))
        for group in sorted(groups):
            for knot in range(len(KNOTS)):
                self.number("curve", group, knot)

    def predict(self, rows: Sequence[FittedRow]) -> Floats:
        """Return the seconds of rows; what no fitted row has is at its prior."""
        terms = self._row_terms(rows)
        self._extend()
        return self.seconds(self.values, terms)[0]


def _alike(parameter: Parameter) -> Parameter:
    """Return the parameter that a prior holds one near to: of all jobs, or of the tier inside; itself if of neither."""
    group = parameter[1]
    alike = group.replace("fabric", "rack")
    if "larger" in group:
        alike = group.replace("larger", "all")
    return parameter[0], alike, parameter[2]


def _start_value(name: str, group: str, number: int) -> float:
    """Return the logarithm of a typical quantity; of a curve's rise its logit."""
    if name == "curve":
        if number:
            return -3 + 0.75 * number  # flat for small messages, in proportion for large ones
        return math.log(5e-7 if group == NODE else 2e-6)
    typical = {
        "fold": 1 / 8e9,
        "copy": 1 / 1e10,
        "fresh": 1 / 4e9,
        "fresh of node": 1 / 2e10,
        "port": 1 / 1.2e10,
        "ports": 1 / 4e10,
        "further port": 3e-7,
        "link": 1 / 6e9,
        "hop": 1e-7,
        "overhead": 3e-7,
        "segment": 3e-7,
        "address": 1e-6,
        "skew": 3e-7,
    }
    return math.log(typical[name])


def fit_collectives(rows: Sequence[FittedRow]) -> CollectiveModel:
    """Return the fitted model; larger jobs have curves of their own where these explain the rows clearly better.

    Every number of nodes counts alike in this, because the rows of a launch share its errors.
    """
    counts = row_weights(rows)
    shares_ports = any(_shares_port(row) for row in rows)
    model = CollectiveModel(shares_ports=shares_ports)
    model.fit(rows, counts)
    best = _misfit(model, rows)
    for nodes in sorted({row.nodes for row in rows})[1:]:
        candidate = CollectiveModel(larger_from=nodes, shares_ports=shares_ports)
        candidate.fit(rows, counts)
        misfit = _misfit(candidate, rows)
        if misfit < CLEARLY_BETTER * best:
            model, best = candidate, misfit / CLEARLY_BETTER
    return model


def _shares_port(row: FittedRow) -> bool:
    return any(
        isinstance(work, PathMessage) and work.port_bytes > work.rank_bytes for work in row.work
    )


def row_weights(rows: Sequence[FittedRow]) -> list[float]:
    """Return the weight of each row: numbers of nodes with many rows count more than others, but not as much more."""
    rows_of_nodes = Counter(row.nodes for row in rows)
    weights = np.array([rows_of_nodes[row.nodes] ** -0.5 for row in rows])
    return list(weights / weights.mean())


def _misfit(model: CollectiveModel, rows: Sequence[FittedRow]) -> float:
    """Return the mean over the numbers of nodes of the mean loss of a row."""
    errors = np.log(model.predict(rows)) - np.log([row.seconds for row in rows])
    losses: dict[int, list[float]] = defaultdict(list)
    for row, error in zip(rows, errors, strict=True):
        losses[row.nodes].append(math.log1p((error / TYPICAL_ERROR) ** 2))
    means = [np.mean(losses_of_nodes) for losses_of_nodes in losses.values()]
    return float(np.mean(means))
