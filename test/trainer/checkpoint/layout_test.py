"""A checkpoint is a safetensors file: read here by the layout's definition alone, checksums included; and it is
whole whenever its writer is killed."""
import json
import os
import pathlib
import re
import struct
import subprocess
import tempfile
import time
import unittest
import zlib

PROGRAM = os.environ["TUTTI_CHECKPOINT"]
HANG_GUARD_S = 120
FORMATS = {"F32": "f", "F64": "d", "I64": "q", "U8": "B"}


def read(path):
    """Metadata and entries {name: (dtype, shape, values, bytes)} of a safetensors file."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    metadata = header.pop("__metadata__")
    data, entries, at = raw[8 + length:], {}, 0
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert begin == at, f"a hole before {name}"
        at = end
        piece, format_ = data[begin:end], FORMATS[entry["dtype"]]
        values = struct.unpack(f"<{len(piece) // struct.calcsize(format_)}{format_}", piece)
        entries[name] = (entry["dtype"], entry["shape"], list(values), piece)
    assert at == len(data), "the entries do not fill the file"
    return raw[8:8 + length], metadata, entries


class Layout(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.path = pathlib.Path(scratch.name) / "model.safetensors"
        subprocess.run([PROGRAM, cls.path], check=True, timeout=HANG_GUARD_S, stdout=subprocess.DEVNULL)
        cls.text, cls.metadata, cls.entries = read(cls.path)

    def test_python_reads_names_types_shapes_and_values(self):
        self.assertEqual({n: e[:3] for n, e in self.entries.items()}, {
            "fc/weight": ("F32", [2, 3], [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]),
            "größe": ("F64", [2], [1e300, -0.25]),
            "iteration": ("I64", [], [-7]),
            "mask": ("U8", [3, 0], []),
        })
        self.assertEqual(self.metadata["epoch"], "3")

    def test_the_metadata_are_texts_and_the_header_ends_on_8_bytes(self):
        self.assertTrue(all(isinstance(v, str) for v in self.metadata.values()))
        self.assertEqual(len(self.text) % 8, 0)
        self.assertEqual(self.metadata["tutti.format"], "1")

    def test_every_entry_has_its_checksum(self):
        for name, (_, _, _, piece) in self.entries.items():
            self.assertEqual(self.metadata["tutti.crc32." + name], f"{zlib.crc32(piece):08x}", name)

    def test_the_header_has_its_own_checksum(self):
        zeros = re.sub(rb'("tutti.header_crc32":")[0-9a-f]{8}', rb"\g<1>00000000", self.text, count=1)
        self.assertEqual(self.metadata["tutti.header_crc32"], f"{zlib.crc32(zeros):08x}")

    def test_a_writer_that_is_killed_leaves_a_whole_file(self):
        path = self.path.with_name("killed.safetensors")
        for delay_s in (0.0, 0.003, 0.01, 0.02, 0.05):
            with subprocess.Popen([PROGRAM, path, "1000000"], stdout=subprocess.PIPE) as writer:
                self.assertEqual(writer.stdout.readline(), b"saved\n")
                time.sleep(delay_s)
                writer.kill()
            with self.subTest(delay_s=delay_s):
                _, metadata, entries = read(path)
                for name, (_, _, _, piece) in entries.items():
                    self.assertEqual(metadata["tutti.crc32." + name], f"{zlib.crc32(piece):08x}", name)
        # The next save removes the partial file that a killed writer may have left.
        subprocess.run([PROGRAM, path], check=True, timeout=HANG_GUARD_S, stdout=subprocess.DEVNULL)
        self.assertEqual(list(path.parent.glob("*.partial")), [])


if __name__ == "__main__":
    unittest.main()
