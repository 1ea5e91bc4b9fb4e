#!/bin/bash
# Runs test_golden over all files of $DRT_SHARED/golden that belong to it; 77 when there is no such folder.
set -u
program=("$@") # with the emulator before it where there is one
folder="${DRT_SHARED:-}/golden"
if [ ! -d "$folder" ]; then
    echo "skipped: no folder $folder; the cases of tests/golden/data ran on their own"
    exit 77
fi
shopt -s nullglob
files=("$folder"/drt_*.safetensors "$folder"/gca_op_*.safetensors "$folder"/lm_base*.safetensors "$folder"/tokenizer_*cases.jsonl)
for file in "$folder"/*.safetensors "$folder"/*.jsonl; do
    case " ${files[*]} " in
    *" $file "*) ;;
    *) echo "skipped: $file (not a case of this program)" ;;
    esac
done
if [ ${#files[@]} -eq 0 ]; then
    echo "skipped: no cases in $folder"
    exit 77
fi
exec "${program[@]}" "${files[@]}"
