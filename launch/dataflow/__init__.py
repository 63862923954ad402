"""Runs on Dataflow: profiles, commands and the Flex Template; see README.md."""
