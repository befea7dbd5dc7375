#!/bin/sh
# reuse_object.sh OBJECTS COMPILER ARGUMENT...: stands before the compiler where the container's recipe is tried: an object that
# the build OBJECTS has already made of the same source is copied, all else is compiled.
objects=$1
shift
output='' dependencies='' previous=''
for argument in "$@"; do
  case $previous in
    -o) output=$argument ;;
    -MF) dependencies=$argument ;;
  esac
  previous=$argument
done
case $output in
  *.o)
    if [ -f "$objects/$output" ] && [ -n "$dependencies" ]; then
      : >"$dependencies"
      echo "$output" >>/tmp/reused
      exec cp "$objects/$output" "$output"
    fi
    ;;
esac
exec "$@"
