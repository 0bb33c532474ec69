"""Generated worlds: graphs of any size and questions about them, reproducible by seed.

The small world has only path questions (`small`). The second has questions of every operation
(`everything`), and the third has questions about dates (`temporal`).
"""

from kbqa.datasets.world.everything import generate_world_all
from kbqa.datasets.world.sets import GENERATED
from kbqa.datasets.world.small import World, generate_questions, generate_world

__all__ = ["GENERATED", "World", "generate_questions", "generate_world", "generate_world_all"]
