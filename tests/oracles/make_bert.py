#!/usr/bin/env python3
"""Makes tests/oracles/bert/: a small random BERT with what `transformers` computes for some texts.

    python3 -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch transformers safetensors
    /tmp/oracle/bin/python tests/oracles/make_bert.py

Made with torch 2.15.0, transformers 4.57.6, tokenizers 0.22.2. tests/unit/encoder/test_bert_encoder.c and
tests/unit/data/test_wordpiece.c read the files. Weights are rounded to float16, so that the files are small and exact.
"""
import json
import pathlib
import unicodedata

import safetensors.torch
import torch
import transformers

out = pathlib.Path(__file__).parent / "bert"
out.mkdir(exist_ok=True)
texts = [
    "the cat sat on the mat",
    "The Cat, sat!? on (the) MAT...",
    "Café naïve Ångström ÉCOLE e\u0301cole",
    "東京 and 北京市 catmat\u4e00x",
    "unbelievable catsatmat thematcat",
    "",
    "   \t\n  ",
    "a",
    "x" * 100 + " " + "y" * 101 + " cat",
    "the cat\u00a0sat\u2003on\u3000the\u200bmat\u0000\ufffd\u0007",
    "İstanbul ΣΑΣ ßtraße ﬁn ǅ",
    "$5.00 is 10% of ~50 `units` ^ + < = > |",
    "한국어 हिन्दी ไทย",
    "[CLS] cat [SEP] [MASK] [UNK]",
    "the cat sat on the mat and the mat sat on the cat " * 8,
    "emoji \U0001f600 cat \u2014 mat \u2018quote\u2019 \u00bf",
    "cat\r\nsat\rmat",
    "don't can't o'clock",
]
words = "the cat sat on mat and is of a an un ##believ ##able ##cat ##mat ##sat ##s units quote emoji can don t o clock"
characters = sorted({c for t in texts for c in unicodedata.normalize("NFD", t.lower()) if unicodedata.category(c)[0] in "LNPS"})
characters = [c for c in characters if not 0xAC00 <= ord(c) < 0xD7A4 and c not in "xßย"]       # some stay unknown
vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + words.split()
for c in characters:
    for piece in (c, "##" + c):
        if piece not in vocab and (piece == c or unicodedata.category(c)[0] == "L"):
            vocab.append(piece)
vocab.append("café"), vocab.append("##É"), vocab.append("Cat"), vocab.append("É")
vocab = list(dict.fromkeys(vocab + ["x", "##x"]))
(out / "vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf-8")

torch.manual_seed(14)
config = transformers.BertConfig(
    vocab_size=len(vocab), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=56,
    max_position_embeddings=72, layer_norm_eps=1e-12)
config._attn_implementation = "eager"
model = transformers.BertModel(config).eval()
with torch.no_grad():
    for name, p in model.named_parameters():
        scale = 0.3 if p.dim() == 2 else 0.2
        p.copy_((torch.randn_like(p) * scale + (1.0 if name.endswith("LayerNorm.weight") else 0.0)).half().float())
config.save_pretrained(out)
half = {name: t.half().contiguous() for name, t in model.state_dict().items()}
safetensors.torch.save_file(half, out / "model.safetensors", metadata={"format": "pt"})
# As in the oldest files: torch.save, a head beside the encoder, LayerNorm's gamma and beta.
old = {"bert." + n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t
       for n, t in half.items()}
old["cls.predictions.bias"] = torch.zeros(len(vocab)).half()
torch.save(old, out / "pytorch_model.bin")

MOST = 64
(out / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": MOST, "do_lower_case": False}) + "\n")
modes = {"uncased": (True, None, True), "cased": (False, None, True), "accents": (True, False, False)}
cases = {}
for name, (lower, accents, chinese) in modes.items():
    tokenizer = transformers.BertTokenizerFast(
        vocab_file=str(out / "vocab.txt"), do_lower_case=lower, strip_accents=accents, tokenize_chinese_chars=chinese)
    # The spelling of a special token inside a text is ordinary text here. BertTokenizer would recognise it, so it gets spaces.
    spelled = [t.replace("[", "[ ").replace("]", " ]") for t in texts]
    cases[name] = tokenizer(spelled, truncation=True, max_length=MOST)["input_ids"]
rows, units = [], []
with torch.no_grad():
    for ids in cases["uncased"]:
        mean = model(torch.tensor([ids])).last_hidden_state[0].double().mean(0)
        rows.append([round(x, 8) for x in mean.tolist()])
        units.append([round(x, 8) for x in (mean / mean.norm()).tolist()])
expected = {"max_tokens": MOST, "texts": texts, "ids": cases, "rows": rows, "units": units}
(out / "expected.json").write_text(json.dumps(expected, ensure_ascii=True, separators=(",", ":")) + "\n")
print(len(vocab), "tokens;", [len(i) for i in cases["uncased"]])
