"""Training steps in reports and on terminals, as ``render.workload_page.WorkloadPage`` shows them."""

from collections.abc import Iterator

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.series_points import series_points
from hpccoll.common.text import Finding
from hpccoll.extensions.steps.analysis.step_comparison import (
    compare_steps,
    late_findings,
    product_findings,
)
from hpccoll.extensions.steps.analysis.step_findings import (
    TRAINING_NOTE,
    step_table,
    trained_points,
    training_table,
)
from hpccoll.extensions.steps.render.step_answers import step_answers
from hpccoll.extensions.steps.render.step_charts import (
    share_against_ranks,
    step_timeline_chart,
    time_against_bucket,
)
from hpccoll.extensions.steps.render.training_charts import (
    accuracy_against_steps,
    loss_against_steps,
)
from hpccoll.extensions.steps.results.step_times import step_of
from hpccoll.render.answer_lines import Answer
from hpccoll.render.figure import Figure, series_of
from hpccoll.render.workload_page import Table
from hpccoll.store.rows import Results


def _lines(group: ChartGroup) -> list[str]:
    return [*series_of(group), *trained_points(group)]


STEP_FIGURES = (
    Figure("timeline", "the timeline of one step", step_timeline_chart,
        "The iteration of the foremost workload closest to its median. Of each rank: above, the forward and the "
        "backward pass, in a training between its shard and its update; below, the collectives, each with its bytes, "
        "from its begin to its end on that rank. A thin line leads from when it was ready to its begin; a message that "
        "is received is such a line only. Red: nothing is computed, before the last collective has ended. Of many "
        "ranks the first, the last, the slowest and a few others are drawn. The per cent of exposed communication are "
        "by the null step.", has_series=False, lines=_lines),
    Figure("share", "communication in the step against {unit}", share_against_ranks,
        "Exposed: what the step takes longer than the same step without communication and codecs (null), over the "
        "step. All: the durations of all collectives of a rank, added up, over the step, hidden or not.",
        over_ranks=True, lines=_lines),
    Figure("bucket", "time of the step against the limit of a bucket", time_against_bucket,
        "Median, with its 95 % interval as a band. The dotted grey line is the step without communication.",
        lines=_lines),
    Figure("loss", "loss against the steps of the training", loss_against_steps,
        "The loss of a batch before its update: the mean over the steps since the point before. A line for each "
        "workload, on the most ranks, by the algorithm that the tooltip names: all learn the same.",
        has_series=False, lines=_lines),
    Figure("accuracy", "accuracy against the steps of the training", accuracy_against_steps,
        "The share of the images that are held out which the network names rightly after the step. Lines as above.",
        has_series=False, lines=_lines),
)  # fmt: skip
"""The charts of training steps, which have no size and no bandwidth."""


class StepPage:
    """Shows training steps; each method does what that of ``WorkloadPage`` says."""

    figures = STEP_FIGURES

    def answers(self, results: Results) -> list[Answer]:
        return step_answers(results)

    def remarks(self, results: Results) -> Iterator[Finding]:
        compared = compare_steps(results.rows, {run.run_id: run.machine for run in results.runs})
        names = {point.row.key: point.rank_name for point in series_points(results, {})}
        yield from product_findings(compared, lambda key: step_of(results.timelines.get(key)))
        yield from late_findings(compared, names)

    def choices(self, group: ChartGroup) -> Table:
        return step_table(group)

    def tables(self, group: ChartGroup) -> list[tuple[Table, str]]:
        return [(training_table(group), TRAINING_NOTE)]


STEP_PAGE = StepPage()
