"""Files as users write them."""

REVERSE_WORDS = """\
from prorl.envs import ProceduralTask, draft

WORDS = "apple bell cloud door earth fig grass hill ink jar kite lamp moon nest oak pond".split()


class ReverseWords(ProceduralTask):
    domain = "logic"
    levels = (3, 4, 5)

    def generate(self, rng, level):
        words = rng.sample(WORDS, level)
        right = " ".join(reversed(words))
        return draft(f"Write these words in reverse order: {' '.join(words)}", right, steps="", answer=right)

    def score(self, payload, answer):
        return float(answer.split() == payload.split())
"""

LENGTH_REWARD = '''\
def score(response, row, gold):
    """The share of the words asked for that the response says."""
    return sum(word in response for word in gold.split()) / len(gold.split())
'''
