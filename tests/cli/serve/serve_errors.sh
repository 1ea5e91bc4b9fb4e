#!/usr/bin/env bash
# Every error of drt-serve's endpoints: its status, and OpenAI's error object with type, parameter and message.
. "$DRT_SOURCE/tests/cli/serve/lib_serve.sh" || exit 1
tiny_model "$TMP/model"
corpus "$TMP/corpus.jsonl" 12 150
tiny_store "$TMP/store" "$TMP/model" "$TMP/corpus.jsonl" --lexical off

# refused STATUS TYPE PARAM TEXT PATH [BODY [CURL OPTIONS...]]; PARAM "": null
refused() {
    local type=$2 param=null text=$4
    [ -z "$3" ] || param=\"$3\"
    ask "$1" "${@:5}"
    header_has "Content-Type: application/json"
    out_has "\"type\":\"$type\",\"param\":$param,\"code\":"
    sed -n 's/^{"error":{"message":"\(.*\)","type":.*/\1/p' "$OUT" | grep -qF -- "$text" || die "$5 ${6:-}: the message lacks \"$text\""
}
wrong() { refused 400 invalid_request_error "$1" "$2" /v1/completions "$3"; } # PARAM TEXT BODY

# ---- a store without landmarks
tiny_store "$TMP/words" "$TMP/model" "$TMP/corpus.jsonl" --landmarks none
expect_error "has no landmarks" "$SERVE" --model "$TMP/model" --store "$TMP/words" --retrieval corpus --port 0
serve_start --model "$TMP/model" --store "$TMP/words"
ask 200 /v1/models
out_has '"landmarks":false,"lexical":true'
wrong "" "has no landmarks" '{"prompt": "a", "retrieval": {"source": "corpus"}}'
ask 200 /search '{"text": "a b c", "k": 2}'
out_has '"hits":[{"chunk":'
serve_stop

# ---- with a key, short limits and no store
printf 'a key of some length\n' >"$TMP/key"
expect_error "run chmod 600" "$SERVE" --model "$TMP/model" --api-key-file "$TMP/key"
chmod 600 "$TMP/key"
serve_start --model "$TMP/model" --api-key-file "$TMP/key" --max-body 2k --max-tokens 50 --max-prompt-tokens 60 --max-prompts 2 --allow-host drt.example \
    --cors-origin https://notes.example
for path in /v1/models /metrics /tokenizer_info /documents/1; do refused 401 authentication_error "" "Authorization: Bearer KEY" $path; done
out_has '"code":"invalid_api_key"'
header_has "WWW-Authenticate: Bearer"
for path in /v1/completions /tokenize /detokenize /search; do refused 401 authentication_error "" "API key" $path '{}' -H "Authorization: Bearer a key of some lengthX"; done
ask 200 /health
ask 200 /
KEY="Authorization: Bearer a key of some length"
ask 200 /v1/models "" -X GET -H "$KEY"
out_has '"store":null'
with_key() { refused "$1" "$2" "$3" "$4" "$5" "$6" -H "$KEY"; }
with_key 404 not_found_error "" "has no store" /search '{"text": "a"}'
refused 404 not_found_error "" "has no store" /documents/1 "" -X GET -H "$KEY"
with_key 400 invalid_request_error retrieval "has no store" /v1/completions '{"prompt": "a", "retrieval": {"source": "corpus"}}'
with_key 400 invalid_request_error retrieval "has no store" /v1/completions '{"prompt": "a", "retrieval": {"memory": "both"}}'
with_key 400 invalid_request_error prompt "more than 2 prompts" /v1/completions '{"prompt": ["a", "b", "c"]}'
with_key 400 invalid_request_error prompt "--max-prompt-tokens" /v1/completions "{\"prompt\": \"$(words 80 | tr -d '\n')\"}"
with_key 400 invalid_request_error max_tokens "from 0 to 50" /v1/completions '{"prompt": "a", "max_tokens": 51}'
with_key 413 invalid_request_error "" "--max-body" /v1/completions "{\"prompt\": \"$(words 600 | tr -d '\n')\"}"
head -c 3000 /dev/zero | tr '\0' ' ' >"$TMP/long"
with_key 413 invalid_request_error "" "--max-body" /search "@$TMP/long"
refused 413 invalid_request_error "" "--max-body" /search "@$TMP/long" -H "$KEY" -H "Transfer-Encoding: chunked"
refused 403 permission_error "" "--allow-host" /health "" -X GET -H "Host: evil.example"
ask 200 /health "" -X GET -H "Host: drt.example:$PORT"
refused 403 permission_error "" "--cors-origin" /health "" -X GET -H "Origin: https://evil.example"
refused 403 permission_error "" "--cors-origin" /health "" -X GET -H "Origin: null"
ask 200 /health "" -X GET -H "Origin: https://notes.example"
header_has "Access-Control-Allow-Origin: https://notes.example"
ask 200 /health "" -X GET -H "Origin: $URL"
ask 204 /v1/completions "" -X OPTIONS -H "Origin: https://notes.example" -H "Access-Control-Request-Method: POST"
header_has "Access-Control-Allow-Headers: Authorization, Content-Type"
serve_stop

# ---- open on loopback
serve_start --model "$TMP/model" --store "$TMP/store" --model-name tiny
for path in /nothing /v1 /v1/chat/completions /documents //page.js /..%2fpage.js; do refused 404 not_found_error "" "nothing at this path" $path; done
refused 405 invalid_request_error "" "does not take this method" /v1/completions
header_has "Allow: POST, OPTIONS"
refused 405 invalid_request_error "" "does not take this method" /v1/models '{}'
header_has "Allow: GET, HEAD, OPTIONS"
refused 405 invalid_request_error "" "does not take this method" /search "" -X DELETE
refused 400 invalid_request_error "" "whole number" /documents/-1
refused 400 invalid_request_error "" "whole number" /documents/x
refused 400 invalid_request_error "" "whole numbers" "/documents/1?chunks=1e3"
refused 404 not_found_error "" "documents are 0 to 11" /documents/12

wrong "" "a JSON object" ''
wrong "" "a JSON object" '[]'
wrong "" "request body" '{"prompt": "a"'
wrong "" "the end of the body" '{"prompt": "a"} {}'
wrong "" "request body" '{"prompt": nil}'
wrong prompt "prompt is missing" '{}'
wrong prompt "prompt is missing" '{"prompt": null}'
wrong prompt "an array of token ids" '{"prompt": 3}'
wrong prompt "an empty array" '{"prompt": []}'
wrong prompt "an array of token ids" '{"prompt": ["a", [1]]}'
wrong prompt "token ids from 0 to 270" '{"prompt": [1, 271]}'
wrong prompt "token ids from 0 to 270" '{"prompt": [1, 2.5]}'
wrong prompt "given once" '{"prompt": "a", "prompt": "b"}'
wrong max_token "unknown member" '{"prompt": "a", "max_token": 3}'
wrong max_tokens "a whole number" '{"prompt": "a", "max_tokens": -1}'
wrong max_tokens "a whole number" '{"prompt": "a", "max_tokens": "3"}'
wrong max_tokens "needs echo" '{"prompt": "a", "max_tokens": 0}'
wrong temperature "from 0 to 100" '{"prompt": "a", "temperature": -0.1}'
wrong top_p "a number" '{"prompt": "a", "top_p": 1.5}'
wrong seed "a whole number" '{"prompt": "a", "seed": 1.5}'
wrong stop "empty" '{"prompt": "a", "stop": ""}'
wrong stop "U+0000" '{"prompt": "a", "stop": ["a\u0000b"]}'
wrong stop "more than 16" '{"prompt": "a", "stop": ["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]}'
wrong logprobs "from 0 to 64" '{"prompt": "a", "logprobs": 65}'
wrong stream "true or false" '{"prompt": "a", "stream": 1}'
wrong stream_options.usage "unknown member" '{"prompt": "a", "stream": true, "stream_options": {"usage": true}}'
wrong retrieval "an object" '{"prompt": "a", "retrieval": "corpus"}'
wrong retrieval.source 'one of \"none\"' '{"prompt": "a", "retrieval": {"source": "web"}}'
wrong retrieval.k "from 0 to 64" '{"prompt": "a", "retrieval": {"source": "self", "k": 65}}'
wrong retrieval.searcher 'one of \"landmark\"' '{"prompt": "a", "retrieval": {"source": "self", "searcher": "web"}}'
wrong retrieval.continuation "from 0 to 64" '{"prompt": "a", "retrieval": {"source": "self", "continuation": -1}}'
wrong retrieval.overlap "from 0 to 62" '{"prompt": "a", "retrieval": {"source": "self", "overlap": 63}}'
wrong retrieval.overlap "of a continuation" '{"prompt": "a", "retrieval": {"source": "self", "overlap": 31}}'
wrong retrieval.continuation "chunks of the store" '{"prompt": "a", "retrieval": {"source": "self", "continuation": 1}}'
wrong retrieval.continuation "chunks of the store" '{"prompt": "a", "retrieval": {"continuation": 1}}'
wrong retrieval.searcher "chunks of the store" '{"prompt": "a", "retrieval": {"source": "self", "searcher": "lexical"}}'
wrong retrieval.query_tokens "from 0 to 128" '{"prompt": "a", "retrieval": {"source": "corpus", "query_tokens": 129}}'
wrong retrieval.query_tokens "by words" '{"prompt": "a", "retrieval": {"source": "corpus", "query_tokens": 9}}'
wrong retrieval.memory 'needs retrieval.source' '{"prompt": "a", "retrieval": {"source": "self", "memory": "own"}}'
wrong n "from 1 to 64" '{"prompt": "a", "n": 0}'
wrong n "2 prompts with 33 choices each; this server takes 64 choices (--max-prompts)" '{"prompt": ["a", "b"], "n": 33}'
wrong best_of "must be n" '{"prompt": "a", "best_of": 2}'
wrong presence_penalty "0 (this server has no other)" '{"prompt": "a", "presence_penalty": 0.5}'
wrong logit_bias "does not support" '{"prompt": "a", "logit_bias": {"5": 1}}'
wrong suffix "does not support" '{"prompt": "a", "suffix": "b"}'
refused 404 not_found_error "" "there is no such model" /v1/models/gpt
out_has '"code":"model_not_found"'
refused 404 not_found_error model 'there is no model \"gpt\"' /v1/completions '{"prompt": "a", "model": "gpt"}'
out_has '"code":"model_not_found"'

refused 400 invalid_request_error text "missing or empty" /search '{}'
refused 400 invalid_request_error text "missing or empty" /search '{"text": ""}'
refused 400 invalid_request_error ids "not both" /search '{"text": "a", "ids": [1]}'
refused 400 invalid_request_error k "from 1 to 1000" /search '{"text": "a", "k": 0}'
refused 400 invalid_request_error "" "no lexical index" /search '{"text": "a", "searcher": "lexical"}'
refused 400 invalid_request_error prompt "prompt is missing" /tokenize '{}'
refused 400 invalid_request_error prompt "must be a text" /tokenize '{"prompt": [1]}'
refused 400 invalid_request_error tokens "tokens is missing" /detokenize '{}'
refused 400 invalid_request_error tokens "from 0 to 270" /detokenize '{"tokens": [-1]}'
same "$(grep -c '"status":200' "$TMP/log")" 0 "requests that were answered"
[ "$(metric 'drt_requests_total{endpoint="/v1/completions",code="400"}')" -ge 30 ] || die "refused requests are not counted"
serve_stop
exit 0
