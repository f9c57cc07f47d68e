#!/bin/sh
# An OCI runtime for tests: containers are shell scripts of the bundle, nothing is isolated.
#
# Bundle files: program.sh (the container's program), exec.sh (an exec's), and to misbehave: slow.<command>
# (seconds to sleep first), hang.<command> (a child of the call that sleeps for a minute; its pid is in hanging), slow.program (seconds between the end of start and the program's exec), fail.<command>
# (the error to fail with), criu.<command> (the log that criu then leaves). Each call is a line in calls, its arguments are in
# arguments.<command>.
set -eu

while [ $# -gt 0 ]; do
    case $1 in
    --root) root=$2; shift 2 ;;
    --log) log=$2; shift 2 ;;
    --log-format) shift 2 ;;
    --*) shift ;;
    *) break ;;
    esac
done
command=$1
shift
bundle=$(dirname "$log")
echo "$command" >>"$bundle/calls"
pid_file= console= image= leave= work=
echo "$*" >"$bundle/arguments.$command"
while [ $# -gt 0 ]; do
    case $1 in
    --bundle | --process | --resources) shift 2 ;;
    --work-path) work=$2; shift 2 ;;
    --image-path) image=$2; shift 2 ;;
    --leave-running) leave=yes; shift ;;
    --pid-file) pid_file=$2; shift 2 ;;
    --console-socket) console=$2; shift 2 ;;
    --*) shift ;;
    *) break ;;
    esac
done
id=$1
state="$root/$id"

if [ -f "$bundle/hang.$command" ]; then
    sleep 60 &
    echo $! >"$bundle/hanging"
    wait
    touch "$bundle/late"
fi
if [ -f "$bundle/slow.$command" ]; then sleep "$(cat "$bundle/slow.$command")"; fi
if [ -f "$bundle/fail.$command" ]; then
    if [ -f "$bundle/criu.$command" ]; then
        mkdir -p "$work"
        case $command in
        checkpoint) cp "$bundle/criu.$command" "$work/dump.log" ;;
        restore) cp "$bundle/criu.$command" "$work/restore.log" ;;
        esac
    fi
    printf '{"level":"error","msg":"%s"}\n' "$(cat "$bundle/fail.$command")" >>"$log"
    exit 1
fi

case $command in
create)
    mkdir -p "$state"
    rm -f "$state/start"
    rm -f "$state/created"
    mkfifo "$state/start" "$state/created"
    # Like a runtime's init it waits to be started, then becomes the program, which is another executable. What a
    # signal does to it is its own affair.
    bash -c 'trap "touch \"$2/init.signalled\"; exit 1" USR1
        echo yes >"$1/created"
        read -r _ <"$1/start"
        if [ -f "$2/slow.program" ]; then sleep "$(cat "$2/slow.program")"; fi
        exec sh "$2/program.sh"' init "$state" "$bundle" &
    echo $! >"$pid_file"
    read -r _ <"$state/created"
    ;;
start) echo go >"$state/start" ;;
exec)
    sh "$bundle/exec.sh" &
    echo $! >"$pid_file"
    ;;
delete) rm -rf "$state" ;;
# Its checkpoint of a container is an empty file.
checkpoint)
    mkdir -p "$image"
    touch "$image/state"
    if [ -z "$leave" ]; then kill -9 "$(cat "$bundle/init.pid")"; fi
    ;;
restore)
    test -e "$image/state"
    mkdir -p "$state"
    sh "$bundle/program.sh" &
    echo $! >"$pid_file"
    ;;
update) cat >"$bundle/resources.json" ;;
kill | pause | resume) ;;
*)
    echo "unknown command $command" >&2
    exit 1
    ;;
esac
