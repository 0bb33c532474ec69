import os, sys, tempfile, time
from pathlib import Path
from tests.gold.table import *
from tests.gold.playing import RECIPES, make_codec
data = Path(os.environ["KBQA_DATA"])
sample = int(os.environ.get("SAMPLE", "0")) or None
names = os.environ.get("RECIPE", "").split() or RECIPES
rows = {}
with tempfile.TemporaryDirectory() as d:
    grounds = [ground(n, data, Path(d), sample) for n in sys.argv[1:]]
    codec = make_codec(texts_of(grounds), tags())
    for g in grounds:
        for r in names:
            t = time.time()
            rows[r, g.dataset] = row = play_all(g, r, codec)
            print(r, g.dataset, row.questions, row.right, row.rewarded, round(time.time()-t, 1), flush=True)
            seen = set()
            for i, w in row.listed.items():
                print("    ", i, w, flush=True)
    print("\n".join(report(rows)))
