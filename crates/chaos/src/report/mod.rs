//! The page that shows a run: `history.jsonl`, `faults.jsonl` and `report.json` in one
//! self-contained file.
