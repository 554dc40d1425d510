"""Texts that repeat themselves, so that demo-gpt2 needs some of its heads."""

_WORDS = """
kettle sang candle burned/river froze lamp fell/teacher spoke garden grew/horse ran window broke
king slept market closed/letter came house burned/dog barked train left/boy laughed clock stopped
ship sank bridge held/doctor called rain ended
"""

REPEATED = tuple(
    "The {0} {1} and the {2} {3} while the {0} {1} and the {2} {3}.".format(*four.split())
    for line in _WORDS.split("\n")
    for four in line.split("/")
    if four
)
