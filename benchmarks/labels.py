"""The rules of onset that detectors are measured against: those of the lab, `regimescope.trainer.lab.labels`. They were
committed before any detector was tuned."""

from regimescope.trainer.lab.labels import Labels, decay_onset, gone, halved, label, length_onset, repetition_onset

__all__ = ["Labels", "decay_onset", "gone", "halved", "label", "length_onset", "repetition_onset"]
