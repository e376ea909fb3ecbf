# A Millpond broker. `docker build -t millpond .`, then see docs/how-to/docker.md.
#
# The first stage builds a wheel from this source and installs it with pinned dependencies; the second has neither
# pip's cache nor the source, only what runs.

FROM python:3.12-slim-bookworm AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE requirements.txt requirements-dev.txt ./
COPY proto ./proto
COPY src ./src
# requirements.txt pins what a broker needs; requirements-dev.txt also pins what the extras add (S3, PostgreSQL).
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
    && python -m venv --without-pip /opt/millpond \
    && set -- /wheels/millpond-*.whl \
    && pip --python /opt/millpond/bin/python install --no-cache-dir --only-binary :all: \
        --requirement requirements.txt --constraint requirements-dev.txt "$1[s3,postgres]"

FROM python:3.12-slim-bookworm
LABEL org.opencontainers.image.title="millpond" \
      org.opencontainers.image.description="One durable message log: Kafka, gRPC and HTTP over local files or S3." \
      org.opencontainers.image.licenses="Apache-2.0"
# The numbers are fixed, so that the owner of a volume's files is known.
RUN groupadd --gid 10001 millpond \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin millpond \
    && install --directory --owner=millpond --group=millpond /data
COPY --from=build /opt/millpond /opt/millpond
ENV PATH=/opt/millpond/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    MILLPOND_DATA_DIR=/data \
    MILLPOND_KAFKA_LISTEN=0.0.0.0:9092 \
    MILLPOND_GRPC_LISTEN=0.0.0.0:9999 \
    MILLPOND_HTTP_LISTEN=0.0.0.0:8000
# Clients are told these addresses: right for `docker run -p 9092:9092 …` on this machine, to be changed elsewhere.
ENV MILLPOND_KAFKA_ADVERTISE=localhost:9092 \
    MILLPOND_GRPC_ADVERTISE=localhost:9999 \
    MILLPOND_HTTP_ADVERTISE=localhost:8000
# Nobody has to authenticate yet. Inside a container one must listen on every address, and then the broker wants to
# hear that this is meant: whoever reaches the published ports can read and write everything.
ENV MILLPOND_INSECURE=true
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 9092 9999 8000
# Drains: takes nothing more, makes durable and answers what it has taken. Give it time: `docker stop --time 30`.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os; from urllib.request import urlopen; urlopen('http://127.0.0.1:' + os.environ['MILLPOND_HTTP_LISTEN'].rpartition(':')[2] + '/readyz', timeout=4)"]
ENTRYPOINT ["millpond"]
CMD ["serve"]
