//! One Rust file, parsed: what it names, which functions it defines, which modules it declares.
//!
//! Names are taken from the tokens, so comments and strings never count, and what stands inside a
//! macro call does. Paths are resolved through the file's own `use` items: `time::Instant` after
//! `use std::time` is `std::time::Instant`. What a type is, this does not know; clippy's
//! `disallowed-methods` catch the calls that need it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use proc_macro2::{Delimiter, LineColumn, Span, TokenStream, TokenTree};
use syn::spanned::Spanned as _;
use syn::visit::Visit;

/// A parsed file.
pub struct RustSource {
    /// The module declarations without a body, in order.
    pub modules: Vec<ModuleDeclaration>,
    /// Files named by `include!`, relative to the folder of this one.
    pub included: Vec<String>,
    /// Every function with a body.
    pub functions: Vec<Function>,
    /// Every use of a name that a rule may be about, tests left out.
    pub uses: Vec<Use>,
    /// The same inside items that are compiled for tests alone.
    pub uses_in_tests: Vec<Use>,
    /// The comments `// tidy-allow(rule): reason`.
    pub permits: Vec<Permit>,
}

/// `mod name;`, perhaps inside inline modules, perhaps with `#[path]`.
pub struct ModuleDeclaration {
    /// The inline modules around it, outermost first.
    pub inside: Vec<String>,
    pub name: String,
    /// The value of `#[path]`.
    pub path: Option<String>,
    /// Whether it, or a module around it, is compiled for tests alone.
    pub test_only: bool,
}

/// A function with a body.
pub struct Function {
    /// `name`, or `Type::name` for what stands in an `impl` or a trait.
    pub name: String,
    /// For what stands in `impl Trait for Type`: also `Trait::name`.
    pub trait_name: Option<String>,
    pub line: usize,
    /// From the `fn` line to the closing brace.
    pub lines: usize,
}

/// One place that names something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    pub line: usize,
    pub named: Named,
}

/// What is named.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Named {
    /// A path of at least one part, joined by `::`; a glob import ends in `::*`.
    Path(String),
    /// `.name()` without arguments.
    Method(String),
    /// `name!`.
    Macro(String),
    /// The keyword `unsafe`.
    Unsafe,
}

/// A comment that permits one rule to be broken on its line or the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    pub line: usize,
    pub rule: String,
    pub reason: String,
}

impl RustSource {
    /// Parses a file.
    ///
    /// # Errors
    /// The line and the parser's words, if it is not Rust.
    pub fn parse(text: &str) -> Result<Self, (usize, String)> {
        let at = |error: syn::Error| (error.span().start().line, error.to_string());
        let tokens: TokenStream = text
            .parse()
            .map_err(|error: proc_macro2::LexError| (error.span().start().line, error.to_string()))?;
        let file: syn::File = syn::parse2(tokens.clone()).map_err(at)?;
        let mut items = Items::default();
        items.visit_file(&file);
        let flat = flatten(tokens);
        let mut scan = Scan { aliases: &items.aliases, uses: items.uses.clone() };
        scan.tokens(&flat);
        let mut uses = scan.uses;
        // An import stands in the grammar and in the tokens.
        uses.sort();
        uses.dedup();
        let (uses_in_tests, uses) = uses
            .into_iter()
            .partition(|found| items.test_lines.iter().any(|lines| lines.contains(&found.line)));
        Ok(Self {
            modules: items.modules,
            included: included(&flat),
            functions: items.functions,
            uses,
            uses_in_tests,
            permits: permits(text, &flat),
        })
    }

    /// Whether the file defines a function that people would call `name`: `function`,
    /// `Type::function` or `Trait::function`.
    pub fn defines(&self, name: &str) -> bool {
        self.functions
            .iter()
            .any(|function| function.name == name || function.trait_name.as_deref() == Some(name))
    }
}

/// Collects what needs the grammar: modules, functions, imports, test-only items.
#[derive(Default)]
struct Items {
    modules: Vec<ModuleDeclaration>,
    functions: Vec<Function>,
    uses: Vec<Use>,
    /// What each imported name stands for.
    aliases: BTreeMap<String, String>,
    test_lines: Vec<RangeInclusive<usize>>,
    /// The inline modules around the current place.
    inside: Vec<String>,
    inside_tests: bool,
    /// The type and, if any, the trait of the `impl` or trait around the current place.
    around: Option<(String, Option<String>)>,
}

impl Items {
    fn add_function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let (start, end) = (signature.fn_token.span.start().line, block.brace_token.span.close().end().line);
        let name = signature.ident.to_string();
        let (name, trait_name) = match &self.around {
            Some((of_type, of_trait)) => (
                format!("{of_type}::{name}"),
                of_trait.as_ref().map(|of_trait| format!("{of_trait}::{name}")),
            ),
            None => (name, None),
        };
        self.functions.push(Function { name, trait_name, line: start, lines: end - start + 1 });
    }

    fn add_imports(&mut self, tree: &syn::UseTree, prefix: &str) {
        let joined = |ident: &syn::Ident| match ident.to_string().as_str() {
            "self" if !prefix.is_empty() => prefix.to_owned(),
            name if prefix.is_empty() => name.to_owned(),
            name => format!("{prefix}::{name}"),
        };
        match tree {
            syn::UseTree::Path(path) => self.add_imports(&path.tree, &joined(&path.ident)),
            syn::UseTree::Name(name) => {
                let path = joined(&name.ident);
                let alias = path.rsplit("::").next().unwrap_or(&path).to_owned();
                self.add_import(name.ident.span(), path, alias);
            }
            syn::UseTree::Rename(rename) => {
                self.add_import(rename.ident.span(), joined(&rename.ident), rename.rename.to_string());
            }
            syn::UseTree::Glob(glob) => self.uses.push(Use {
                line: glob.star_token.span.start().line,
                named: Named::Path(format!("{prefix}::*")),
            }),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_imports(tree, prefix)),
        }
    }

    fn add_import(&mut self, span: Span, path: String, alias: String) {
        self.uses.push(Use { line: span.start().line, named: Named::Path(path.clone()) });
        if alias != path {
            self.aliases.insert(alias, path);
        }
    }
}

impl<'ast> Visit<'ast> for Items {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_test_only(attributes(item)) && !self.inside_tests {
            self.test_lines.push(lines_of(item.span()));
            self.inside_tests = true;
            syn::visit::visit_item(self, item);
            self.inside_tests = false;
        } else {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let name = module.ident.to_string();
        if module.content.is_some() {
            self.inside.push(name);
            syn::visit::visit_item_mod(self, module);
            self.inside.pop();
        } else {
            let path = module.attrs.iter().find_map(path_attribute);
            self.modules.push(ModuleDeclaration {
                inside: self.inside.clone(),
                name,
                path,
                test_only: self.inside_tests,
            });
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_imports(&item.tree, "");
    }

    fn visit_item_extern_crate(&mut self, item: &'ast syn::ItemExternCrate) {
        let alias = item.rename.as_ref().map_or(&item.ident, |(_, rename)| rename).to_string();
        self.add_import(item.ident.span(), item.ident.to_string(), alias);
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        let around = self.around.take();
        self.add_function(&function.sig, &function.block);
        syn::visit::visit_item_fn(self, function);
        self.around = around;
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let last = |path: &syn::Path| path.segments.last().map(|segment| segment.ident.to_string());
        let of_type = match &*item.self_ty {
            syn::Type::Path(path) => last(&path.path),
            _ => None,
        };
        let of_trait = item.trait_.as_ref().and_then(|(path, _)| last(path));
        let around = self.around.replace((of_type.unwrap_or_default(), of_trait));
        syn::visit::visit_item_impl(self, item);
        self.around = around;
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add_function(&function.sig, &function.block);
        syn::visit::visit_impl_item_fn(self, function);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        let around = self.around.replace((item.ident.to_string(), None));
        syn::visit::visit_item_trait(self, item);
        self.around = around;
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.add_function(&function.sig, block);
        }
        syn::visit::visit_trait_item_fn(self, function);
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an attribute says `cfg(test)`, or `cfg(all(test, ...))`.
fn is_test_only(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string().replace(' ', "");
            condition == "test" || condition.starts_with("all(test,")
        }
        _ => false,
    })
}

fn path_attribute(attribute: &syn::Attribute) -> Option<String> {
    match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => Some(path.value()),
            _ => None,
        },
        _ => None,
    }
}

fn lines_of(span: Span) -> RangeInclusive<usize> {
    span.start().line..=span.end().line
}

/// A token without its nesting.
struct Flat {
    text: String,
    kind: FlatKind,
    start: LineColumn,
    end: LineColumn,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FlatKind {
    Ident,
    Literal,
    /// One character, or a bracket.
    Mark,
}

fn flatten(tokens: TokenStream) -> Vec<Flat> {
    fn add(tokens: TokenStream, flat: &mut Vec<Flat>) {
        let push = |text: &str, kind, span: Span, flat: &mut Vec<Flat>| {
            flat.push(Flat { text: text.to_owned(), kind, start: span.start(), end: span.end() });
        };
        for token in tokens {
            let span = token.span();
            match token {
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Parenthesis => ("(", ")"),
                        Delimiter::Brace => ("{", "}"),
                        Delimiter::Bracket => ("[", "]"),
                        Delimiter::None => ("", ""),
                    };
                    push(open, FlatKind::Mark, group.span_open(), flat);
                    add(group.stream(), flat);
                    push(close, FlatKind::Mark, group.span_close(), flat);
                }
                TokenTree::Ident(ident) => push(&ident.to_string(), FlatKind::Ident, span, flat),
                TokenTree::Punct(mark) => push(&mark.as_char().to_string(), FlatKind::Mark, span, flat),
                TokenTree::Literal(literal) => push(&literal.to_string(), FlatKind::Literal, span, flat),
            }
        }
    }
    let mut flat = Vec::new();
    add(tokens, &mut flat);
    flat
}

/// Finds paths, method calls, macro calls and `unsafe` in a row of tokens.
struct Scan<'a> {
    aliases: &'a BTreeMap<String, String>,
    uses: Vec<Use>,
}

impl Scan<'_> {
    fn tokens(&mut self, tokens: &[Flat]) {
        let is = |index: usize, text: &str| tokens.get(index).is_some_and(|token| token.text == text);
        let is_separator = |index: usize| is(index, ":") && is(index + 1, ":");
        let mut index = 0;
        while index < tokens.len() {
            let token = &tokens[index];
            let line = token.start.line;
            index += 1;
            if token.kind != FlatKind::Ident {
                continue;
            }
            if token.text == "unsafe" {
                self.uses.push(Use { line, named: Named::Unsafe });
                continue;
            }
            let after_dot = index >= 2 && is(index - 2, ".") && !(index >= 3 && is(index - 3, "."));
            if after_dot {
                if is(index, "(") && is(index + 1, ")") {
                    self.uses.push(Use { line, named: Named::Method(token.text.clone()) });
                }
                continue;
            }
            let mut path = token.text.clone();
            while is_separator(index)
                && tokens.get(index + 2).is_some_and(|next| next.kind == FlatKind::Ident)
            {
                path = format!("{path}::{}", tokens[index + 2].text);
                index += 3;
            }
            if is(index, "!") && !is(index + 1, "=") {
                let name = path.rsplit("::").next().unwrap_or(&path).to_owned();
                self.uses.push(Use { line, named: Named::Macro(name) });
            }
            if path.contains("::") {
                self.uses.push(Use { line, named: Named::Path(self.resolved(path)) });
            }
        }
    }

    fn resolved(&self, path: String) -> String {
        let Some((first, rest)) = path.split_once("::") else { return path };
        match self.aliases.get(first) {
            Some(full) => format!("{full}::{rest}"),
            None => path,
        }
    }
}

/// The files that `include!("...")` names.
fn included(tokens: &[Flat]) -> Vec<String> {
    tokens
        .windows(4)
        .filter(|window| {
            window[0].text == "include" && window[1].text == "!" && window[3].kind == FlatKind::Literal
        })
        .map(|window| window[3].text.trim_matches('"').to_owned())
        .collect()
}

const PERMIT: &str = "// tidy-allow(";

/// The permits of a file. One inside a string is none.
fn permits(text: &str, tokens: &[Flat]) -> Vec<Permit> {
    let mut permits = Vec::new();
    for (index, line_text) in text.lines().enumerate() {
        let Some(byte) = line_text.find(PERMIT) else { continue };
        let place = LineColumn { line: index + 1, column: line_text[..byte].chars().count() };
        let in_literal = tokens
            .iter()
            .any(|token| token.kind == FlatKind::Literal && token.start <= place && place < token.end);
        if in_literal {
            continue;
        }
        let rest = &line_text[byte + PERMIT.len()..];
        let (rule, reason) = rest.split_once(')').unwrap_or((rest, ""));
        permits.push(Permit {
            line: place.line,
            rule: rule.trim().to_owned(),
            reason: reason.trim_start_matches(':').trim().to_owned(),
        });
    }
    permits
}

#[cfg(test)]
#[path = "rust_source_tests.rs"]
mod tests;
