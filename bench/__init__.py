"""The harness: suites, budgets, training, evaluation, metrics, results, tables."""
