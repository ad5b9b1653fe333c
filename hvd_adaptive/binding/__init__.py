"""What the bindings of all frameworks share: the object that Horovod takes as ``compression=``, and what it keeps."""
