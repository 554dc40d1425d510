"""Why each step of the walk is there, and the bug that shows when it is done wrongly."""

from __future__ import annotations

WHY = {
    "x": "One vector of D numbers for each token; batch first, so pass batch_first=True where "
    "a library expects [T, B, D], or the batch is attended across.",
    "context": "Keys and values come from here, queries from X; swap the two and the output has "
    "as many rows as the context.",
    "w_q": "Asks: what is this token looking for? All heads in one matrix; head h owns columns "
    "h·d to (h+1)·d.",
    "w_k": "Says: what does this token offer to be found by? Must come from the same sequence "
    "as V.",
    "w_v": "Says: what does this token hand over when it is attended to? Its length must be that "
    "of K.",
    "w_q_latent": "Queries go through a narrow layer first, which saves parameters and "
    "activations, not cache.",
    "w_latent": "Keys and values of all heads squeezed into r numbers: the only content a cache "
    "has to keep.",
    "w_k_rope": "Position cannot travel through the latent, so one small rotary key per token, "
    "shared by all heads, carries it.",
    "view": "Cuts the last axis into H pieces of d without moving a number; a view straight to "
    "[B, H, T, d] has the right shape but mixes tokens with heads.",
    "view_kv": "As for Q, but with G heads and the keys' own length: reusing H or T here is the "
    "usual error of cross and grouped attention.",
    "transpose": "Heads become a batch axis, so that one matrix product serves all of them; "
    "without it T and H are confused and scores come out [B, T, H, H].",
    "transpose_kv": "As for Q; the tensor is now a strided view, which a later .view refuses.",
    "cache": "Keys and values of earlier tokens are kept, not computed again; forgetting to append "
    "leaves the token looking only at itself.",
    "w_index_q": "The indexer asks with small heads of its own, made from the queries' latent; its "
    "rotation pairs i and i + half, where the other queries here pair neighbours.",
    "w_index_k": "One small key per token for all of the indexer's heads, normalized and cached "
    "beside the latent.",
    "w_index_w": "How much each of the indexer's heads counts for this token; it may be negative.",
    "index": "A cheap score of every key for each query: no softmax, and the same for all heads.",
    "select": "Only the keys of the largest index take part, the same for all heads; a query with "
    "fewer earlier keys than that keeps all of them.",
    "share": "H/G query heads read the same keys: head h reads key head h // (H/G); repeat (tile) "
    "instead of repeat_interleave pairs them wrongly at the right shape.",
    "rope": "The position part of each query is rotated and appended to its content; rotate the "
    "content as well and the latent trick no longer holds.",
    "rope_k": "Every head gets its own rebuilt content and the one shared position key, in the "
    "same order as in Q.",
    "norm_q": "Keeps scores from growing with the length of queries and keys, whatever was "
    "trained; over a head's d numbers or over all heads at once differs, at the same shape.",
    "norm_k": "As for Q, with weights of its own; before the rotation, which keeps lengths, and "
    "before the cache, or cached keys would be normalized twice.",
    "rotate_q": "Two rotated vectors' product depends on the distance of their positions alone; "
    "pairs are i and i + half, or two neighbours: the wrong one runs at the same shape.",
    "rotate_k": "Keys turn by their own position, values do not; cached keys are turned already, "
    "and a new one needs its true position, not 0.",
    "position_bias": "The only positions that such a model has: one learned number for each bucket "
    "of distances and head; later layers add the first one's, and a layer that forgets it sees a "
    "bag of words.",
    "window": "A query sees near keys only, so that its scores stop growing with the text; the "
    "size counts the query's own position, and off by one shows only in texts beyond it.",
    "scores": "Each query against each key, head by head; Kᵀ swaps the last two axes only "
    "(.transpose(-1, -2), not .T).",
    "scale": "A sum of d products has variance d: unscaled, softmax saturates and its gradient "
    "dies as d grows; divide by √d of one head, not √D.",
    "unscaled": "T5 leaves the factor out and folds it into the initial weights; adding it to "
    "trained weights flattens every head.",
    "softcap": "Keeps scores within a bound before the mask; after the mask it would turn -∞ into "
    "a number and let masked keys in.",
    "mask": "Blocked keys get -∞ before softmax; zeroing weights after softmax leaves rows that "
    "do not sum to 1, and future keys that still take part.",
    "softmax": "Over the last axis, the keys: every row sums to 1; dim=-2 would normalize over "
    "queries at the same shape. Dropout, in training, comes after it.",
    "heads": "Each row is an average of V's rows by the weights: a head can only hand on what V "
    "holds.",
    "w_gate": "A gate for every number that a head hands on, from the same token vector: how much "
    "of it is let through.",
    "gate": "Each head's output is scaled number by number, after attention and before W_O, so a "
    "head can fall silent without a sink.",
    "untranspose": "Brings the heads of one token next to each other again; without it the concat "
    "glues different tokens together, at the right shape.",
    "concat": "The transpose left a strided view that .view refuses: .contiguous() copies it "
    "(.reshape does so silently), and then H and d are one axis.",
    "w_o": "Mixes the heads: Y = Σ_h Z_h W_O[h·d:(h+1)·d]; forget it and every head writes only "
    "into its own slice of the residual stream.",
}
