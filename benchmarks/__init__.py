"""What respcache costs, as ratios to others that do the same job in the same run.

One file per question: ``bench_hit``, ``bench_document``, ``bench_cold``,
``bench_lock``, ``bench_stores``, ``bench_after`` and ``bench_growth``. ``python -m
benchmarks`` runs them. They report and never gate.
"""
