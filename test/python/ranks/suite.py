"""Torch's own tests of its backends, from its wheel, over tutti and with what they expect of gloo.

usage: suite.py [--whole] [--ranks N] [--name tutti|gloo|builtin] [TEST…]     (no tests: the chosen ones)

--name gloo: tutti answers to that name, as install(as_gloo=True) makes it; builtin: torch's own, to compare.
"""
import argparse
import multiprocessing
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

# One or two tests for each kind of operation, those of errors, and those of what torch builds on a backend.
CHOSEN = """
    Backend_enum_class DistributedDataParallelCPU DistributedDataParallelCPU_grad_is_view DistributedSampler_padding
    accumulate_gradients_no_sync_allreduce_hook all_gather all_gather_coalesced_group all_gather_coalesced_simple
    all_gather_coalesced_with_empty all_gather_complex all_gather_group all_gather_object_default_pg
    all_gather_object_subgroup all_reduce_coalesced_group_sum all_reduce_coalesced_max_complex_unsupported
    all_reduce_complex_unsupported_ops all_reduce_full_group_min all_reduce_group_product all_reduce_max
    all_reduce_sum all_reduce_sum_async all_reduce_sum_complex barrier barrier_full_group barrier_group
    barrier_timeout_full_group barrier_timeout_global barrier_timeout_group batch_isend_irecv_gloo
    batch_isend_irecv_gloo_tags broadcast broadcast_full_group broadcast_group
    destroy_full_group destroy_group dump_DDP_relevant_env_vars gather gather_checks
    gather_full_group get_backend get_future get_rank_size_group irecv isend isend_torch_profiler
    monitored_barrier_failure_order monitored_barrier_gloo monitored_barrier_gloo_rank_0_timeout
    monitored_barrier_gloo_subgroup monitored_barrier_wait_all_ranks reduce_group_max reduce_min reduce_sum
    reduce_sum_twice scatter scatter_checks scatter_complex scatter_group scatter_object_list send_recv
    send_recv_any_source send_recv_any_source_torch_profiler send_recv_with_tag send_recv_with_tag_autograd_profiler
    sparse_all_reduce_sum static_graph_api_cpu verify_model_across_rank_without_logger
""".split()
# Torch calls every backend that is not its own "custom" there.
EXCEPTED = {"test_ddp_logging_data_cpu"}


class Name(str):
    """tutti's name, and gloo where the suite asks which of torch's backends it tests."""

    def __eq__(self, other):
        return str.__eq__(self, other) or other == "gloo"

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash("gloo")


def suite_of(folder: pathlib.Path, name: str, ranks: int):
    """A class with all tests. One process imports torch; each test has its ranks by fork."""
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(ranks), TEMP_DIR=str(folder), MASTER_ADDR="127.0.0.1",
                      INIT_METHOD=f"file://{folder}/shared_init_file")
    from torch.testing._internal import common_distributed

    common_distributed.skip_if_small_worldsize = lambda function: function  # fewer than 8: their groups need 3
    from torch.testing._internal.distributed import distributed_test

    if name != "builtin":
        import tutti.torch

        tutti.torch.build()
    if name == "gloo":
        tutti.torch.install(as_gloo=True)
    elif name == "tutti":
        distributed_test.BACKEND = Name(name)

    class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            (folder / "shared_init_file").unlink(missing_ok=True)
            self._start_processes(multiprocessing.get_context("fork").Process)

    Suite.__module__, Suite.__qualname__ = "suite", "Suite"
    return Suite


def main() -> bool:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--name", choices=("tutti", "gloo", "builtin"), default="tutti")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("tests", nargs="*")
    asked = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tutti-suite-"))
    try:
        suite = suite_of(folder, asked.name, asked.ranks)
        every = unittest.TestLoader().getTestCaseNames(suite)
        wanted = every if asked.whole else [f"test_{name.removeprefix('test_')}" for name in asked.tests or CHOSEN]
        print("not in this torch:", *sorted(set(wanted) - set(every)))
        excepted = set() if asked.name == "builtin" else EXCEPTED
        tests = unittest.TestSuite(suite(name) for name in wanted if name in set(every) - excepted)
        return unittest.TextTestRunner(verbosity=2, stream=sys.stdout).run(tests).wasSuccessful()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
