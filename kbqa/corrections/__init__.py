"""Corrections by users: which can be taught, what policies have learned from them, and who said them.

    said = corrections_of(read_feedback(*feedback_files(home)), names)
    examined = examine(CorrectionRecord(home).valid(said), earlier.all, tools)
    lesson = teach(home, store, tools, examined, earlier=earlier, must_answer=questions)

`teach` is in `kbqa.corrections.teaching`, because it loads torch.
"""

from kbqa.corrections.correction import Correction, corrections_of
from kbqa.corrections.examining import Examination, SetAside, examine
from kbqa.corrections.record import CorrectionRecord, Earlier, Lesson, Revocation

__all__ = [
    "Correction",
    "CorrectionRecord",
    "Earlier",
    "Examination",
    "Lesson",
    "Revocation",
    "SetAside",
    "corrections_of",
    "examine",
]
