#!/usr/bin/env -S python -P
"""A Python worker: a task manager starts this file, and it does the steps that the task manager gives it.

Beam's own way, a worker pool, would listen on every address of the machine. This one listens nowhere.
"""

import argparse

import grpc
from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc
from apache_beam.runners.worker.sdk_worker import SdkHarness
from apache_beam.runners.worker.worker_id_interceptor import WorkerIdInterceptor


def main() -> None:
    """Works until the task manager closes the connection."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--id', required=True, help='Name of the worker.')
    parser.add_argument('--provision_endpoint', required=True, help='Where it asks for all other places.')
    options = parser.parse_args()
    with grpc.insecure_channel(options.provision_endpoint) as channel:
        named = grpc.intercept_channel(channel, WorkerIdInterceptor(options.id))
        provision = beam_provision_api_pb2_grpc.ProvisionServiceStub(named)
        answer = provision.GetProvisionInfo(beam_provision_api_pb2.GetProvisionInfoRequest())
    SdkHarness(answer.info.control_endpoint.url, worker_id=options.id).run()


if __name__ == '__main__':
    main()
