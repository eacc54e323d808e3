"""Errors of the detectors. They import nothing of the monitor, so they have a tree of their own.

DetectorError
└── RulesError      a rules file that cannot be read, names an unknown key, or gives a value of the wrong type
"""


class DetectorError(Exception):
    """A user's mistake: shown as one line, without a traceback."""


class RulesError(DetectorError, ValueError):
    pass
