#!/bin/sh
# A turn over HTTP, with curl alone: what the model would see, and what was remembered.
#
#     pip install '.[server]'
#     export AFTERTURN_TOKEN=$(afterturn token create --name demo --space user:demo)
#     afterturn serve &
#     sh examples/http/turn.sh
#
# It needs curl 7.82 or newer. MEMORY_URL names another server than http://127.0.0.1:7433.
set -eu

url="${MEMORY_URL:-http://127.0.0.1:7433}/api/v1"
: "${AFTERTURN_TOKEN:?Set it to what \`afterturn token create\` prints.}"

# ask PATH [BODY]: prints the answer. The token is read from a file descriptor, so that it is not in the list of processes.
ask() {
    path=$1
    shift
    curl --silent --show-error --fail-with-body --max-time 30 --retry 2 --config - "$url$path" ${1:+--json "$1"} <<TOKEN
header = "Authorization: Bearer $AFTERTURN_TOKEN"
TOKEN
    echo
}

# An id of yours: then each request may be sent again if its answer was lost.
turn="turn-$(date +%s)-$$"
conversation='{"id": "curl-demo", "standing": "off"}'
question='{"role": "user", "content": "What food is my cat allergic to?"}'
answer='{"role": "assistant", "content": "Chicken."}'

echo "Remember something:"
ask /spaces/user:demo/memories '{"text": "My cat Miso is allergic to chicken."}'

echo "Start a turn, with all messages:"
ask /turns "{\"conversation\": $conversation, \"turn\": \"$turn\", \"messages\": [$question]}"

echo "Before the model is called: what to insert into the messages:"
ask "/turns/$turn/inject" "{\"conversation\": $conversation, \"messages\": [$question], \"within\": 10}"

echo "After the model has answered:"
ask "/turns/$turn/finish" "{\"conversation\": $conversation, \"messages\": [$question, $answer]}"

echo "Why the block had what it had:"
ask "/conversations/curl-demo/trace?turn=$turn"
