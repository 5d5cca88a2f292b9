# A small image for the CPU. For CUDA build with
#   docker build --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 .
FROM python:3.11-slim AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/framecast
WORKDIR /source
COPY pyproject.toml requirements.lock README.md LICENSE ./
# torch first and alone: it is the largest layer and changes least. Its own index wins over PyPI,
# as a version with a local part such as +cpu counts as newer.
RUN /opt/framecast/bin/pip install -c requirements.lock --extra-index-url "$TORCH_INDEX" torch
COPY engine engine
COPY server server
RUN /opt/framecast/bin/pip install -c requirements.lock .

FROM python:3.11-slim
COPY --from=build /opt/framecast /opt/framecast
RUN useradd --uid 10001 --create-home framecast
USER framecast
ENV PATH=/opt/framecast/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    FRAMECAST_HOST=0.0.0.0 \
    FRAMECAST_PORT=8000 \
    FRAMECAST_CACHE=/home/framecast/.cache/framecast \
    FRAMECAST_VOICES_DIR=/home/framecast/voices
# A volume mounted here is the user's own.
RUN mkdir -m 700 /home/framecast/voices
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['FRAMECAST_PORT'] + '/health', timeout=4)"]
ENTRYPOINT ["framecast"]
CMD ["serve"]
