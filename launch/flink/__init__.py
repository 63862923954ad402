"""A standalone Flink cluster on one machine, and the job on it; see docs/deploying/flink.md."""
