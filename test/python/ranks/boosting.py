"""LightGBM's distributed training: boosting.py HOW [PORT…]. Run with two ranks, by tutti-run or with its variables.

HOW is tutti; sockets, for LightGBM's own network on the ports; kill, where rank 1 goes in the middle of the training;
or thread, where a thread trains without a network."""
import hashlib
import os
import signal
import sys
import threading

import lightgbm
import numpy as np

HOW, PORTS = sys.argv[1], sys.argv[2:]
ROWS = 600
PARAMETERS = {"objective": "binary", "num_machines": 2, "pre_partition": True, "num_leaves": 15, "min_data_in_leaf": 5, "num_threads": 1,
              "deterministic": True, "seed": 1, "verbose": -1}
TRAININGS = {
    "data": {"tree_learner": "data"},
    "quantized": {"tree_learner": "data", "use_quantized_grad": True},
    "voting": {"tree_learner": "voting", "top_k": 5},
}


def data():
    """Four numbers, one of which is sometimes unknown, and a category for each row."""
    random = np.random.default_rng(7)
    x = random.random((ROWS, 5))
    x[:, 4] = random.integers(0, 12, ROWS)
    y = ((x[:, 0] + x[:, 1] ** 2 + (x[:, 4] % 3) / 3 + random.normal(0, 0.1, ROWS)) > 1.2).astype(np.float64)
    x[::9, 2] = np.nan
    return x, y


def loss(model, x, y):
    p = np.clip(model.predict(x, num_threads=1), 1e-12, 1 - 1e-12)
    return -np.mean(y * np.log(p) + (1 - y) * np.log(1 - p))


def train(rank, parameters, callbacks=()):
    x, y = data()
    own = slice(0, ROWS // 3) if rank == 0 else slice(ROWS // 3, None)  # uneven
    given = {**PARAMETERS, **parameters}
    return lightgbm.train(given, lightgbm.Dataset(x[own], y[own], categorical_feature=[4], params=given), 12,
                          callbacks=list(callbacks))


def report(rank, name, model):
    trees = model.model_to_string().split("end of trees")[0]  # the parameters follow, which name ports
    print(f"MODEL {name} {rank} {hashlib.sha256(trees.encode()).hexdigest()} {model.num_trees()}", flush=True)
    print(f"LOSS {name} {rank} {loss(model, *data()):.12f}", flush=True)


def over_sockets():
    rank = int(os.environ["TUTTI_RANK"])
    for index, (name, parameters) in enumerate(TRAININGS.items()):
        ports = PORTS[2 * index:2 * index + 2]  # a port cannot be bound again at once
        network = {"machines": ",".join(f"127.0.0.1:{port}" for port in ports), "local_listen_port": int(ports[rank]),
                   "time_out": 1}
        report(rank, name, train(rank, {**parameters, **network}))


def over_tutti():
    import tutti.lightgbm

    with tutti.init(timeout_ms=60_000) as comm:
        for name, parameters in TRAININGS.items():
            sums = []
            with tutti.lightgbm.network(comm):
                model = train(comm.rank, parameters,
                              [lambda environment: sums.append(comm.allreduce(float(environment.iteration)))])
            assert sums == [2.0 * iteration for iteration in range(12)], sums
            report(comm.rank, name, model)


def with_a_loss():
    import tutti.lightgbm

    def end(environment):
        if comm.rank == 1 and environment.iteration == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    comm = tutti.init(timeout_ms=60_000)
    try:
        with tutti.lightgbm.network(comm):
            train(comm.rank, TRAININGS["data"], [end])
    except lightgbm.basic.LightGBMError as error:
        print(f"ERROR {error}", flush=True)
    # The thread has no network any more: it trains alone.
    print(f"ALONE {train(comm.rank, {'num_machines': 1}).num_trees()}", flush=True)


def in_a_thread():
    import tutti.lightgbm

    def work():
        train(comm.rank, TRAININGS["data"])
        print("TRAINED", flush=True)

    with tutti.init(timeout_ms=60_000) as comm:
        try:
            with tutti.lightgbm.network(comm):
                thread = threading.Thread(target=work)
                thread.start()
                thread.join()
        except RuntimeError as error:
            print(f"ERROR {error}", flush=True)


{"tutti": over_tutti, "sockets": over_sockets, "kill": with_a_loss, "thread": in_a_thread}[HOW]()
