#!/usr/bin/env python3
"""Makes the small tokenizers of this folder and cases.jsonl: texts with the ids and the decoded text that the Python
package `tokenizers` gives. Run by hand (pip install tokenizers), with any text file to train on:
    make_cases.py TEXT
Without TEXT it makes only those that are not trained: small-*.json and small_cases.jsonl.
"""
import json
import os
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, __version__, decoders, models, normalizers, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = CL100K.replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
PROSE = ["The river had risen in the night, and by 6:45 the lower road wasn't there any more.",
         "Version 2.10.3 (2024-05-17) fixes 128 bugs;  see http://example.org/notes?id=42#top for details.\n\n\t- first\n\t- second\n",
         "for (int i = 0; i < n; i++) {\n    total += x[i] * 3.14159;   // they're \"fine\"\n}\r\n", "ÜBER naïve café — “quoted” … 50 % of £1,000"]
PT, NF, DE = pre_tokenizers, normalizers, decoders
BYTES = ["<0x%02X>" % b for b in range(256)]
MARK = "\u2581"
SPM = DE.Sequence([DE.Replace(MARK, " "), DE.ByteFallback(), DE.Fuse(), DE.Strip(" ", 1, 0)])


def train(lines, pre, norm, dec, size, byte_level, fallback=False, added=(), **model):
    t = Tokenizer(models.BPE(**({"unk_token": "<unk>", "byte_fallback": True, "fuse_unk": True} if fallback else {}), **model))
    if norm:
        t.normalizer = norm
    if pre:
        t.pre_tokenizer = pre
    if dec:
        t.decoder = dec
    special = (["<unk>"] + BYTES if fallback else ["<unk>"] if model.get("unk_token") else []) + ["<|end|>"]
    alphabet = PT.ByteLevel.alphabet() if byte_level else []
    t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=alphabet,
                                                     limit_alphabet=300, show_progress=False))
    spec = json.loads(t.to_str())
    if fallback:  # the trainer makes the byte tokens special added tokens; published files do not
        spec["added_tokens"] = [a for a in spec["added_tokens"] if a["content"] not in BYTES]
        t = Tokenizer.from_str(json.dumps(spec))
    for a in added:
        t.add_tokens([a])
    return t


def tokenizers(lines):
    seq, bl = PT.Sequence, PT.ByteLevel
    split = lambda p, b="isolated", invert=False: PT.Split(p, b, invert)
    plain = bl(add_prefix_space=False, use_regex=False)
    yield "cl100k", train(lines, seq([split(Regex(CL100K)), plain]), None, DE.ByteLevel(), 500, True, ignore_merges=True)
    yield "qwen2", train(lines, seq([split(Regex(QWEN2)), plain]), NF.NFC(), DE.ByteLevel(), 500, True)
    yield "deepseek", train(lines, seq([split(Regex(r"\p{N}{1,3}")), split(Regex("[一-龥぀-ゟ゠-ヿ]+")), split(Regex(DEEPSEEK)), plain]),
                            None, DE.ByteLevel(), 500, True)
    yield "digits", train(lines, seq([PT.Digits(individual_digits=True), bl(add_prefix_space=False)]), None, DE.ByteLevel(), 450, True)
    yield "digit-runs", train(lines, seq([PT.Digits(), bl(add_prefix_space=True)]), NF.NFKC(), DE.ByteLevel(), 450, True)
    yield "prefix", train(lines, bl(add_prefix_space=True), NF.Sequence([NF.NFKD(), NF.Replace(Regex("[0-9]+"), "#")]), DE.ByteLevel(), 450, True)
    yield "nfd-added", train(lines, bl(add_prefix_space=False), NF.NFD(), DE.ByteLevel(), 450, True, added=[
        AddedToken("word", single_word=True), AddedToken("left", lstrip=True), AddedToken("right", rstrip=True),
        AddedToken("[both]", lstrip=True, rstrip=True, special=True), AddedToken("É", normalized=True), AddedToken("é!", normalized=False),
        AddedToken("lefty", normalized=False), AddedToken("  ", normalized=True), AddedToken("    ", normalized=True)])
    yield "llama2", train(lines, None, NF.Sequence([NF.Prepend(MARK), NF.Replace(" ", MARK)]), SPM, 900, False, True)
    yield "metaspace", train(lines, PT.Metaspace(MARK, "first", True), None, DE.Metaspace(MARK, "first", True), 700, False, True)
    yield "metaspace-whole", train(lines, PT.Metaspace(MARK, "always", False), None, DE.Metaspace(MARK, "always", False), 450, False,
                                   unk_token="<unk>", fuse_unk=True)
    yield "metaspace-never", train(lines, PT.Metaspace(MARK, "never", True), None, DE.Metaspace(MARK, "never", True), 450, False,
                                   unk_token="<unk>", fuse_unk=False)
    yield "gemma", train(lines, split(" ", "merged_with_previous"), NF.Replace(" ", MARK),
                         DE.Sequence([DE.Replace(MARK, " "), DE.ByteFallback(), DE.Fuse()]), 900, False, True)
    yield "joined", train(lines, split(" ", "merged_with_previous"), None, None, 450, False)
    for behaviour in ("removed", "merged_with_previous", "merged_with_next", "contiguous"):
        yield "split-" + behaviour, train(lines, seq([split(Regex(r"\s|[,.]"), behaviour), plain]), None, DE.ByteLevel(), 400, True)
    yield "split-inverted", train(lines, seq([split(Regex(r"\w+|[^\w\s]+"), "removed", True), plain]), None, DE.ByteLevel(), 400, True)


def small():
    """Texts that added tokens must leave unchanged, and one for a pattern's classes."""
    plain = PT.ByteLevel(add_prefix_space=False, use_regex=False)
    letters = {c: i for i, c in enumerate(sorted(PT.ByteLevel.alphabet()))}
    t = Tokenizer(models.BPE(vocab=letters, merges=[], ignore_merges=True))
    t.pre_tokenizer, t.decoder = plain, DE.ByteLevel()
    t.add_tokens([AddedToken("  ", lstrip=True, rstrip=True, normalized=False), AddedToken("ab", normalized=False)])
    t.add_special_tokens(["<|end|>"])
    yield "small-whole-words", t
    t = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(["<unk>", "a", "b", MARK])}, merges=[], unk_token="<unk>"))
    t.normalizer = NF.Sequence([NF.Prepend(MARK), NF.Replace(" ", MARK)])
    t.add_tokens([AddedToken("é", lstrip=True, rstrip=True, normalized=True)])
    t.add_special_tokens(["字"])
    yield "small-characters", t
    t = Tokenizer(models.BPE(vocab=letters, merges=[]))
    t.pre_tokenizer = PT.Sequence([PT.Split(Regex(r"\w+|[^\w\s]+"), "isolated"), PT.ByteLevel(add_prefix_space=True, use_regex=False)])
    t.decoder = DE.ByteLevel()
    yield "small-word-class", t


SMALL_TEXTS = ["<|end|>", "<|end|> ab", "ab", "a b    ab", "    ", "a  \n  b", "   ab   ", "aéb", "é", "a é b", " é é", "字", "a字b 字",
               "Ⅷ²な³¼a", "1¹½¾b", "a⁴b ₂c", "a_b-c ٣", "x²+y²"]


def texts():
    rnd = random.Random(11)
    parts = ["'s", "'S", "'\u017f", "'LL", "'ve", " ", "  ", "   ", "\n", "\r\n", "\t", "a", "The", " of", "é", "e\u0301", "É", "\u1e69", "s\u0323\u0307",
             "1", "23", "4567", "½", "٣", "!", "...", ", ", ". ", " '", MARK, MARK * 2, "<unk>", "<|end|>", "word", " word ", "sword", "left", "lefty",
             "  right  ", "right", " [both] ", "é!", "中文", "ひらがな", "カタカナ", "한국어", "😀", "👩‍👩‍👧", "\u3000", "\u00a0", "\u0085", "\u180e", "\ufb01", "Å", "\ufdfa",
             "\u0000", "\U000f1234", "\u200d", "don't", "I'm", "x=y+1;", "#", "//", "<0x41>", "\u2028", "ß", "ǅ", "Ⅷ", "①"]
    out = ["", " ", "  ", "a", " a", "a ", "\n", MARK, "Hello world", " Hello  world\n\n"]
    out += PROSE
    out += ["".join(rnd.choice(parts) for _ in range(rnd.randrange(1, 18))) for _ in range(45)]
    out.append("ab" * 300)
    return out


def write(made, cases_name, texts):
    with open(os.path.join(HERE, cases_name), "w", encoding="utf8") as cases:
        for name, t in made:
            spec = json.loads(t.to_str())
            with open(os.path.join(HERE, name + ".json"), "w", encoding="utf8") as f:
                json.dump(spec, f, ensure_ascii=False, separators=(",", ":"))
                f.write("\n")
            t = Tokenizer.from_str(json.dumps(spec))  # as in a file: added tokens in order of their ids
            for text in texts:
                t.encode_special_tokens = True
                literal = t.encode(text, add_special_tokens=False).ids
                t.encode_special_tokens = False
                special = t.encode(text, add_special_tokens=False).ids
                case = {"tokenizer": name, "text": text, "ids": literal, "decoded": t.decode(literal, skip_special_tokens=False)}
                if special != literal:
                    case["special_ids"] = special
                cases.write(json.dumps(case, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    write(small(), "small_cases.jsonl", SMALL_TEXTS)
    if len(sys.argv) > 1:
        lines = [l for l in open(sys.argv[1], encoding="utf8").read()[:400000].split("\n") if l.strip()]
        write(tokenizers(lines), "cases.jsonl", texts())
    print("made with tokenizers", __version__)


main()
