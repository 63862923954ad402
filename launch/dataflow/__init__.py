"""Runs on Dataflow: profiles, commands and the Flex Template; see docs/deploying/dataflow.md."""
