"""Speed, memory and accuracy, as ratios to a physical floor and to peers.

``python -m benchmarks`` runs `core`; the other modules run on their own, such as ``python -m benchmarks.logs``.
"""
