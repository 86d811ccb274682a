"""The paper's tables, claims and figures, from whatever suites are done."""
