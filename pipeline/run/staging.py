"""Files of a jar that is uploaded to Flink, and how they come into it."""

import contextlib
import tempfile
from collections.abc import Iterator
from concurrent import futures

import grpc
from apache_beam.options.pipeline_options import FlinkRunnerOptions, PipelineOptions
from apache_beam.portability.api import beam_artifact_api_pb2_grpc, endpoints_pb2
from apache_beam.runners.portability.abstract_job_service import JarArtifactManager, UberJarBeamJob
from apache_beam.runners.portability.artifact_service import ArtifactStagingService


@contextlib.contextmanager
def within_this_user(options: PipelineOptions) -> Iterator[None]:
    """Has Beam stage the files of a jar over a socket in a folder that its owner alone can enter.

    Beam would listen on every interface, where anybody could put in files that run beside the records. Both
    ends are this process.
    """
    if not options.view_as(FlinkRunnerOptions).flink_submit_uber_jar:
        yield
        return
    before = UberJarBeamJob._start_artifact_service
    with tempfile.TemporaryDirectory() as folder:
        place = f'unix:{folder}/staging'

        def start(job: UberJarBeamJob, jar: str, requested_port: int) -> None:
            """As Beam's, but for the place."""
            job._artifact_manager = JarArtifactManager(jar, job.ARTIFACT_FOLDER)
            job._artifact_staging_service = ArtifactStagingService(job._artifact_manager.file_writer)  # type: ignore[arg-type]
            environments = job._pipeline_proto.components.environments
            job._artifact_staging_service.register_job(
                job._job_id, {name: environment.dependencies for name, environment in environments.items()}
            )
            job._artifact_staging_server = grpc.server(futures.ThreadPoolExecutor())
            job._artifact_staging_server.add_insecure_port(place)
            beam_artifact_api_pb2_grpc.add_ArtifactStagingServiceServicer_to_server(
                job._artifact_staging_service, job._artifact_staging_server
            )
            job._artifact_staging_endpoint = endpoints_pb2.ApiServiceDescriptor(url=place)
            job._artifact_staging_server.start()

        UberJarBeamJob._start_artifact_service = start  # type: ignore[method-assign]
        try:
            yield
        finally:
            UberJarBeamJob._start_artifact_service = before  # type: ignore[method-assign]
