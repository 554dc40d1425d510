/**
 * The page of a view in a notebook's cell, by anywidget: a head that is chosen there is the
 * kernel's, and the other way round. The page lies in the widget; nothing is asked of a network.
 */
function render({ model, el }) {
  const frame = document.createElement("iframe");
  frame.dataset.attnviz = "1";
  frame.title = model.get("title");
  frame.style.cssText = `width:100%;height:${model.get("height")}px;border:1px solid #ccc;border-radius:6px`;
  frame.srcdoc = model.get("page");
  const places = model.get("places"); // names of heads -> [kind, id]
  const names = new Map(Object.entries(places).map(([name, place]) => [place.join(" "), name]));
  let told = { head: "", text: 0 }; // what the page itself has said
  let hearing = false;

  const show = () => {
    const [kind, head] = places[model.get("head")] ?? ["", ""];
    frame.contentWindow?.postMessage({ attnviz: "show", kind, head, text: model.get("text") }, "*");
  };
  const changed = () => {
    if (hearing || (model.get("head") === told.head && model.get("text") === told.text)) return;
    show();
  };
  const heard = ({ source, data }) => {
    if (source !== frame.contentWindow || data?.attnviz !== "shown") return;
    const head = names.get(`${data.kind} ${data.head}`);
    const heads = data.on.map((id) => names.get(`${data.kind} ${id}`)).filter(Boolean);
    if (!head) return;
    told = { head, text: data.text };
    hearing = true;
    model.set("head", head);
    model.set("heads", heads);
    model.set("text", data.text);
    hearing = false;
    model.save_changes();
  };

  frame.addEventListener("load", show);
  addEventListener("message", heard);
  model.on("change:head", changed);
  model.on("change:text", changed);
  el.append(frame);
  return () => {
    removeEventListener("message", heard);
    model.off("change:head", changed);
    model.off("change:text", changed);
  };
}

export default { render };
