"""What is known about Spark's functions, by name in lower case.

A function in none of these lists is assumed to be scalar, and to give the same result for the same arguments. Whether
it exists, Spark says later. A test compares the lists with the functions that Spark has.
"""

from __future__ import annotations

from typing import Final


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


MAINTAINED: Final = {
    "avg": "avg",
    "count": "count",
    "count_if": "count",
    "last": "latest",
    "last_value": "latest",
    "latest": "latest",
    "max": "max",
    "max_by": "max_by",
    "mean": "avg",
    "min": "min",
    "min_by": "min_by",
    "sum": "sum",
}
"""Aggregates that are kept up to date, and their names in a plan."""

OTHER_AGGREGATES: Final = _names(
    """
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine
    array_agg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or collect_list
    collect_set collect_union corr count_min_sketch covar_pop covar_samp every first first_value grouping grouping_id
    histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float
    kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis listagg measure median mode percentile
    percentile_approx percentile_cont percentile_disc product regr_avgx regr_avgy regr_count regr_intercept regr_r2
    regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg skewness some std stddev stddev_pop stddev_samp
    string_agg theta_intersection_agg theta_sketch_agg theta_union_agg try_avg try_sum tuple_intersection_agg_double
    tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer tuple_union_agg_double
    tuple_union_agg_integer var_pop var_samp variance vector_avg vector_sum
    """
)

_LOOK_LIKE_AGGREGATES: Final = ("approx_", "collect_")

RANKING: Final = _names(
    """
    counter_diff cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number
    """
)
"""Functions that make sense only with OVER."""

GENERATORS: Final = _names(
    """
    explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer stack variant_explode
    variant_explode_outer
    """
)

UNREPEATABLE: Final = _names(
    """
    ai_query curdate current_catalog current_database current_date current_path current_schema current_time
    current_timestamp current_timezone current_user getdate input_file_block_length input_file_block_start
    input_file_name java_method localtime localtimestamp monotonically_increasing_id now rand randn random randstr
    reflect session_user shuffle spark_partition_id try_reflect uniform user uuid version
    """
)
"""Functions whose result depends on when or where they run: a deleted row could not be removed from its group."""

UNREPEATABLE_WITHOUT_ARGUMENTS: Final = frozenset(["unix_timestamp", "to_unix_timestamp"])

BARE: Final = UNREPEATABLE - {"random", "uniform", "user", "uuid", "version", "reflect", "shuffle"}
"""Names that mean a function even without parentheses, unless they are in backquotes."""

WITH_UNIT: Final = _names(
    """
    date_add date_diff dateadd datediff timediff timestampadd timestampdiff
    """
)
"""Functions whose first of three arguments is a word such as DAY."""


def is_aggregate(name: str) -> bool:
    """Whether a function is, or looks like, an aggregate."""
    return (
        name in MAINTAINED or name in OTHER_AGGREGATES or name.startswith(_LOOK_LIKE_AGGREGATES) or name[-4:] == "_agg"
    )
