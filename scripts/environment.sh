# Sourced by the other scripts: where the project's own Python is, and how to run more ranks than cores.
PATH="$PWD/.venv/bin:$PATH"
export PATH
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
export TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-3}" # horovodrun imports TensorFlow, which is talkative
# Ranks that wait give their core away: on 2 cores, 8 ranks are then 40 times faster.
export OMPI_MCA_mpi_yield_when_idle="${OMPI_MCA_mpi_yield_when_idle:-1}"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
