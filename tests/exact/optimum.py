"""The exact optimum of small instances by HiGHS: a question in JSON on each line of stdin, an answer on each line of stdout.

A question is {"demand": [pods of each kind], "fillings": [[price, [pods of each kind on such a node]], ...]}. Asked for are the
nodes, of any number of each filling, that have a place for every pod and cost the least. An answer is
{"optimum": price, "nodes": count, "seconds": time}, {"unproven": true} where HiGHS found no proof in time, or {"error": text}.
"""

import json
import sys
import time

import highspy
import numpy

# Time limit for one instance. Those of the benchmark take seconds; a missing proof is reported.
SECONDS = 120.0
# HiGHS gets USD, because its tolerances are for numbers of about one.
MICRO = 1e6
# Prices are whole micro-USD, so any closer value is the optimum itself.
GAP = 0.5 / MICRO


def program(demand, fillings):
    """Columns: number of nodes of each filling. Rows: at least as many places for a kind as it has pods."""
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(fillings), len(demand)
    lp.col_cost_ = numpy.array([price / MICRO for price, _ in fillings])
    lp.col_lower_ = numpy.zeros(len(fillings))
    lp.col_upper_ = numpy.full(len(fillings), float(sum(demand)))
    lp.row_lower_ = numpy.array(demand, dtype=float)
    lp.row_upper_ = numpy.full(len(demand), highspy.kHighsInf)
    start, index, value = [0], [], []
    for _, take in fillings:
        for kind, count in enumerate(take):
            if count:
                index.append(kind)
                value.append(float(count))
        start.append(len(index))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = start, index, value
    lp.integrality_ = [highspy.HighsVarType.kInteger] * len(fillings)
    return lp


def solve(question):
    demand, fillings = question["demand"], question["fillings"]
    highs = highspy.Highs()
    for option, value in {
        "output_flag": False, "threads": 1, "time_limit": SECONDS, "mip_rel_gap": 0.0, "mip_abs_gap": GAP,
    }.items():
        highs.setOptionValue(option, value)
    began = time.monotonic()
    highs.passModel(program(demand, fillings))
    highs.run()
    status = highs.getModelStatus()
    if status == highspy.HighsModelStatus.kTimeLimit:
        return {"unproven": True, "seconds": time.monotonic() - began}
    if status != highspy.HighsModelStatus.kOptimal:
        return {"error": highs.modelStatusToString(status)}
    # Verified and summed in integers, independent of the solver's tolerances.
    copies = [round(count) for count in highs.getSolution().col_value]
    for kind, wanted in enumerate(demand):
        places = sum(count * take[kind] for count, (_, take) in zip(copies, fillings))
        if places < wanted:
            return {"error": f"{places} places for {wanted} pods of kind {kind}"}
    optimum = sum(count * price for count, (price, _) in zip(copies, fillings))
    return {"optimum": optimum, "nodes": sum(copies), "seconds": time.monotonic() - began}


def main():
    print(json.dumps({"highs": highspy.Highs().version()}), flush=True)
    for line in sys.stdin:
        print(json.dumps(solve(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
