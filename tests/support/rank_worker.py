"""One rank of a pool: joins Horovod, then runs the functions it is sent until the pool closes the connection.

Usage: rank_worker.py SOCKET torch|tensorflow, under mpirun or horovodrun.
"""

import faulthandler
import importlib
import os
import signal
import sys
import traceback
import warnings
from multiprocessing.connection import Client

import cloudpickle


def main(address: str, framework: str) -> None:
    hvd = importlib.import_module(f"horovod.{framework}")
    module = importlib.import_module(framework)
    if framework == "torch":
        module.set_num_threads(1)
    else:
        module.config.threading.set_intra_op_parallelism_threads(1)
    hvd.init()
    faulthandler.register(signal.SIGUSR1)  # the pool asks where a rank is that does not answer
    with Client(address) as connection:
        connection.send((hvd.rank(), os.getpid()))
        while True:
            try:
                call = connection.recv_bytes()
            except EOFError:
                break
            try:
                function, arguments = cloudpickle.loads(call)
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    answer = (True, function(*arguments))
            except BaseException as error:  # noqa: BLE001 - the pool raises it again
                answer = (False, (error, traceback.format_exc()))
            connection.send_bytes(cloudpickle.dumps(answer))
    hvd.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
