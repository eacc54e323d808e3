"""TensorBoard: event files by its own EventFileWriter."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path

from benchmarks._fixtures import BEGIN, STEPS, Truth, note, numbers
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.summary.writer.event_file_writer import EventFileWriter


def as_float32(value: float) -> float:
    """What an event file keeps of a number."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def write_tensorboard(folder: Path) -> Truth:
    """A run of two processes, the second again from step 15 on; a copy of the beginning of its file; another run."""
    truth: Truth = {}

    def write(run: str, first: int, last: int, seed: int, t: float) -> None:
        writer = EventFileWriter(str(folder / run))
        args = json.dumps({"epsilon_high": 5.0, "loss_type": "cispo"}).encode()  # as HF's callback writes them
        text = TensorProto(dtype=7, tensor_shape=TensorShapeProto(), string_val=[args])
        summary = Summary(value=[Summary.Value(tag="args/text_summary", tensor=text)])
        writer.add_event(Event(step=0, wall_time=t, summary=summary))
        for step in range(first, last):
            wall = t + 10 * (step - first)
            values = {key: as_float32(value) for key, value in numbers(step, seed).items()}
            values["eval/reward"] = as_float32(0.1 + step / 100)
            if step % 5:
                del values["eval/reward"]
            for tag, value in values.items():
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                writer.add_event(Event(step=step, wall_time=wall, summary=summary))
            kl = as_float32(0.001 * step)
            tensor = TensorProto(dtype=1, tensor_shape=TensorShapeProto(), float_val=[kl])
            meta = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))
            second = Summary(value=[Summary.Value(tag="train/kl", tensor=tensor, metadata=meta)])
            writer.add_event(Event(step=step, wall_time=wall, summary=second))
            note(truth, f"{run}/{seed}", step, {**values, "train/kl": kl})
        writer.close()

    write("restarted", 0, 20, 1, BEGIN)
    time.sleep(1.1)  # the second in the file's name
    write("restarted", 15, STEPS, 2, BEGIN + 1000)
    newest = max((folder / "restarted").iterdir())
    copy = newest.with_name(newest.name.replace(".tfevents.", ".tfevents.9"))
    copy.write_bytes(newest.read_bytes()[:1500])
    write("other", 0, 10, 3, BEGIN)
    for path in folder.rglob("*tfevents*"):  # the name holds the host
        head, _, rest = path.name.partition(".tfevents.")
        path.rename(path.with_name(f"{head}.tfevents.{rest.split('.')[0]}.host.{rest.rsplit('.', 1)[-1]}"))
    return truth
