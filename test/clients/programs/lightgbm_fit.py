"""LightGBM's data-parallel training over tutti, or over its own sockets: NETWORK=tutti or own. A step is an iteration."""
import contextlib
import os
import socket
import statistics
import time

import lightgbm
import numpy as np

import tutti
import tutti.lightgbm

ROWS, COLUMNS, ITERATIONS = 4000, 20, 60


def sockets(comm):
    """The parameters with which LightGBM connects the ranks itself. Each rank has found a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        ports = comm.allgather(np.array([probe.getsockname()[1]], np.int32)).ravel()
    return {"machines": ",".join(f"127.0.0.1:{port}" for port in ports), "local_listen_port": int(ports[comm.rank]),
            "time_out": 1}


def main(comm, over_tutti):
    random = np.random.default_rng(comm.rank)
    rows = random.random((ROWS, COLUMNS))
    labels = rows[:, 0] + rows[:, 1] ** 2 + random.normal(0, 0.1, ROWS) > 0.9
    parameters = {"objective": "binary", "metric": "binary_logloss", "tree_learner": "data", "num_machines": comm.size,
                  "pre_partition": True, "num_threads": 1, "deterministic": True, "seed": 1, "verbose": -1,
                  **({} if over_tutti else sockets(comm))}
    ended, losses = [], {}
    with tutti.lightgbm.network(comm) if over_tutti else contextlib.nullcontext():
        data = lightgbm.Dataset(rows, labels, params=parameters)
        lightgbm.train(parameters, data, ITERATIONS, valid_sets=[data],
                       callbacks=[lambda _: ended.append(time.perf_counter()), lightgbm.record_evaluation(losses)])
    if comm.rank == 0:
        for loss in losses["training"]["binary_logloss"]:
            print("LOSS", loss)
        print("STEP_MS", statistics.median(np.diff(ended)) * 1000)


with tutti.init() as communicator:
    main(communicator, os.environ["NETWORK"] == "tutti")
